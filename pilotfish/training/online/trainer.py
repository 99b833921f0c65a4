"""What the trainer does over and over: watch the version that serves, and train a candidate once enough has come."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pilotfish.config import LearningConfig
from pilotfish.learning.facts import VersionFacts
from pilotfish.learning.private_folder import make_private
from pilotfish.learning.ring import Ring
from pilotfish.learning.versions import Versions
from pilotfish.training.data.samples import Sample
from pilotfish.training.online.candidate import OwnData, mixture, train
from pilotfish.training.online.examination import (
    MIN_TEXTS,
    OTHER,
    ExaminationResult,
    Pair,
    compare,
    examine,
    in_words,
    is_worse_or_unsure,
)
from pilotfish.training.online.heads import JUDGED_DEPTHS, TRAINED_DEPTHS, HeadRoom
from pilotfish.training.online.judge import CANDIDATE, Judge, JudgedText
from pilotfish.training.online.samples import sample_of
from pilotfish.training.online.shelf import Shelf, ShelvedText
from pilotfish.training.trainee import Trainee

OWN_DATA = "data"
"""Kind of the head's own data, beside those of the traffic."""
MAX_TEXTS = 32
"""Newest texts of a kind that a candidate is judged by."""
LOOKS = (8, 16, 32, 64)
"""Numbers of unseen texts at which a new version is compared with the one before; after the last it is trusted."""
MAX_USES = 4
"""Candidates that learn from a text, which is then deleted."""
MAX_DOUBTS = 3
"""A kind that the last n candidates did not gain on needs 2^n times as much new text for the next one, n at most so."""

_HEAD = "head"
"""Folder of a candidate, in the scratch folder."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Probation:
    """How far a version that was promoted has been looked at."""

    version: int
    num_looks: int = 0
    seen: set[str] = field(default_factory=set)
    """Prompts whose texts were looked at; some were too short to say anything."""
    pairs: dict[Hashable, Pair] = field(default_factory=dict)


class Trainer:
    """One turn after the other, on one thread."""

    def __init__(
        self,
        settings: LearningConfig,
        ring: Ring,
        versions: Versions,
        heads: HeadRoom,
        *,
        configured: Path,
        own: OwnData,
        scratch: Path,
        bfloat16: bool = False,
        clock: Callable[[], float] = time.time,
        on_progress: Callable[[float, float], None] = lambda *_: None,
    ) -> None:
        """configured: folder of version 0. scratch: a folder on the versions' disk, for what is not finished; emptied.

        on_progress is called at each step of a training, and may end it by an exception.
        """
        self._settings = settings
        self._ring = ring
        self._shelf = Shelf(ring, settings.held_out_share)
        self._versions = versions
        self._heads = heads
        self._configured = configured
        self._own = own
        self._scratch = scratch
        self._bfloat16 = bfloat16
        self._clock = clock
        self._on_progress = on_progress
        self._judge = Judge(self._open, bfloat16=bfloat16)
        self._has_warned = False
        self._doubts: Counter[str] = Counter()
        """Candidates in a row that did not gain on each kind."""
        self._own_items = [
            JudgedText((OWN_DATA, index), OWN_DATA, partial(own.held_out.__getitem__, index))
            for index in range(len(own.held_out))
        ]
        self._probation = _Probation(versions.serving())
        shutil.rmtree(scratch, ignore_errors=True)

    def turn(self) -> bool:
        """Do what there is to do; False: nothing was, so that waiting is worth while.

        Raises ModelError for a head or a serving.json that is damaged, OSError when the disk is full: no version has
        changed then, and texts are kept.
        """
        self._shelf.refresh(self._clock())
        return self._watch_serving() or self._try_candidate()

    # The version that serves

    def _watch_serving(self) -> bool:
        """Compare a version that was promoted with the one before, on texts that neither learned from."""
        serving, before = self._versions.serving(), self._versions.served_before()
        if self._probation.version != serving:
            self._probation = _Probation(serving)
        change = next((each for each in reversed(self._versions.history()) if each.to_version == serving), None)
        if before is None or change is None or change.by_hand or change.to_version < change.from_version:
            return False  # what a person has chosen, or was returned to, stays
        state = self._probation
        if state.num_looks == len(LOOKS):
            return False
        unseen = [text for text in self._shelf.unseen_since(change.at) if text.prompt not in state.seen]
        if len(state.pairs) + len(unseen) < LOOKS[state.num_looks]:
            return False
        unseen = unseen[: LOOKS[-1] - len(state.pairs)]
        state.pairs |= {item.key: pair for item, pair in self._judge.pairs(before, serving, self._items(unseen))}
        state.seen.update(text.prompt for text in unseen)
        num_looks = sum(count <= len(state.pairs) for count in LOOKS)
        if num_looks == state.num_looks:
            return False
        state.num_looks = num_looks
        score = compare(list(state.pairs.values()))
        if score.after - score.before < -score.error:
            self._versions.roll_back(f"worse than version {before}: {in_words(score)}")
            logger.warning("version %d is rolled back to %d: %s", serving, before, in_words(score))
        else:
            logger.info("version %d beside %d: %s", serving, before, in_words(score))
        return True

    # A candidate

    def _try_candidate(self) -> bool:
        self._warn_of_loss()
        # What the ring cannot hold counts as well, or a kind that was doubted could never be learned again.
        num_come = min(self._shelf.num_new_tokens, self._shelf.num_come_tokens(self._doubts))
        if num_come < self._settings.min_tokens or len(self._shelf.held_out) < MIN_TEXTS:
            return False
        parent = self._versions.serving()
        usable = [(text, sample) for text in self._shelf.to_learn if (sample := self._sample(text)) is not None]
        if not usable:
            return False
        texts, samples = [text for text, _ in usable], [sample for _, sample in usable]
        counts = {**self._own.counts}
        for token_id, count in self._shelf.counts.items():
            counts[token_id] = counts.get(token_id, 0) + count
        make_private(self._scratch)
        trainee = self._heads.open(self._versions.head_folder(parent, self._configured), TRAINED_DEPTHS, counts)
        chosen = mixture(samples, self._own, self._settings.data_share, seed=int(self._clock()))
        seconds = train(
            trainee, chosen, self._settings, self._scratch, bfloat16=self._bfloat16, on_progress=self._on_progress
        )
        if any(self._ring.is_forgotten(text.request) for text in texts):
            logger.info("a candidate is dropped: a request that it learned from was to be forgotten")
            return True
        learned = {text.kind for text in texts}
        number, verdict = self._add(trainee, parent, texts, learned, seconds)
        self._doubt(learned, verdict)
        self._shelf.used(texts, MAX_USES)
        self._shelf.fade()
        self._shelf.remove(self._judged_enough())
        is_promoted = verdict.is_better and self._versions.serving() == parent
        if is_promoted:
            self._versions.promote(number, verdict.reason)
        logger.info("version %d is %s: %s", number, "promoted" if is_promoted else "not promoted", verdict.reason)
        self._versions.keep(self._settings.keep_versions)
        return True

    def _add(
        self, trainee: Trainee, parent: int, texts: Sequence[ShelvedText], learned: set[str], seconds: float
    ) -> tuple[int, ExaminationResult]:
        """Write a candidate down and examine what was written, beside its parent."""
        head = self._scratch / _HEAD
        head.mkdir(parents=True, exist_ok=True)
        trainee.save(head)
        items = [*self._items(self._shelf.held_out), *self._own_items]
        self._judge.keep({0, parent}, {item.key for item in items})
        pairs, configured = (
            [pair for _, pair in self._judge.pairs(version, CANDIDATE, items)] for version in (parent, 0)
        )
        verdict = examine(pairs, learned, configured if parent else ())
        facts = VersionFacts(
            parent=parent,
            created_at=self._clock(),
            num_texts=len(texts),
            num_tokens=sum(text.num_tokens for text in texts),
            train_s=round(seconds, 1),
            verdict=verdict.reason,
            score=verdict.score,
            kinds=dict(verdict.kinds),
            learned_from=tuple(sorted({text.request for text in texts})),
        )
        number = self._versions.add(head, facts)
        self._judge.name_candidate(number)
        return number, verdict

    def _warn_of_loss(self) -> None:
        """Say once that texts go before enough have come: nothing would ever be learned."""
        settings, num_lost = self._settings, self._shelf.lost.total()
        has_enough = self._shelf.num_new_tokens >= settings.min_tokens
        if not self._has_warned and not has_enough and num_lost >= settings.min_tokens:
            self._has_warned = True
            logger.warning(
                "%d new answer tokens were deleted before enough had come to learn from: "
                "raise draft.learning.max_bytes (%d) or draft.learning.max_age_s (%g), "
                "or lower draft.learning.min_tokens (%d)",
                num_lost,
                settings.max_bytes,
                settings.max_age_s,
                settings.min_tokens,
            )

    def _doubt(self, learned: set[str], verdict: ExaminationResult) -> None:
        """Note which kinds a candidate gained on. Kinds of which nothing is kept any more are forgotten."""
        before, self._doubts = self._doubts, Counter()
        for kind in learned:
            score = verdict.kinds.get(kind) or verdict.kinds.get(OTHER)
            gains = score is not None and not is_worse_or_unsure(score)
            self._doubts[kind] = 0 if gains else min(before[kind] + 1, MAX_DOUBTS)

    def _judged_enough(self) -> list[ShelvedText]:
        """Held-out texts that newer ones of their kind have replaced."""
        counts: dict[str, int] = {}
        surplus = []
        for text in reversed(self._shelf.held_out):
            counts[text.kind] = counts.get(text.kind, 0) + 1
            if counts[text.kind] > MAX_TEXTS:
                surplus.append(text)
        return surplus

    def _open(self, version: int) -> Trainee:
        """The version's head, to be judged."""
        candidate = self._scratch / _HEAD
        folder = candidate if version == CANDIDATE else self._versions.head_folder(version, self._configured)
        return self._heads.open(folder, JUDGED_DEPTHS)

    def _items(self, texts: Sequence[ShelvedText]) -> list[JudgedText]:
        return [JudgedText(text.path, text.kind, partial(self._sample, text)) for text in texts]

    def _sample(self, text: ShelvedText) -> Sample | None:
        """None where it is gone, or cannot be used and is deleted."""
        loaded = self._ring.load(text.path)
        try:
            return None if loaded is None else sample_of(loaded, self._heads.hidden_size)
        except ValueError as error:
            logger.warning("%s is deleted: %s", text.path, error)
            self._shelf.remove([text])
            return None
