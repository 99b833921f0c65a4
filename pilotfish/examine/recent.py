"""Recent requests of services that learn: the texts of their ring, which an examination follows instead of asking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pilotfish.config import Config
from pilotfish.config.shipped_heads import head_folder
from pilotfish.errors import ConfigError
from pilotfish.examine.drafters import NamedDrafter
from pilotfish.examine.rehearsal import Question
from pilotfish.features import Features
from pilotfish.learning.record import LearnedText, is_held_out
from pilotfish.learning.ring import open_ring
from pilotfish.learning.versions import Versions
from pilotfish.training.online.examination import MIN_TEXTS, OTHER
from pilotfish.types import SamplingParams

MAX_TEXTS = 200
"""The newest so many texts are taken."""
_MIN_ANSWER_TOKENS = 2
_GREEDY = SamplingParams(temperature=0)
_NO_FEATURES = Features(0, 0, b"")
"""In place of a text's own, some MB: the target computes them anew, and for other drafters others."""


@dataclass(frozen=True)
class RecentRequests:
    """What was asked and answered; kinds are those of `pilotfish drafter list`."""

    questions: Sequence[Question]
    """Questions with their answers, the newest first. They count as greedy: the ring does not say how they were
    sampled."""
    drafters: Sequence[NamedDrafter]
    """The version that serves, where it is not the configured head."""


def read_recent(config: Config, per_kind: int | None, now: float) -> RecentRequests:
    """What the ring of the configured services holds, the newest of each prompt. now: unix time in seconds.

    Raises ConfigError where there is nothing, saying why.
    """
    if not config.learning_head:
        raise ConfigError(
            "no EAGLE-3 head drafts by this configuration, and none learns: give the one that the services run with "
            "(--config, --set), or name prompts (--prompts)"
        )
    versions = Versions(config.learning_folder)
    serving = versions.serving()
    texts = _kinds_of(_texts(config, now, held_out_alone=serving > 0), per_kind)
    if not texts:
        raise ConfigError(_nothing(config, serving))
    drafters = []
    if serving:
        folder = versions.head_folder(serving, head_folder(config.learning_head))
        drafters.append(NamedDrafter("eagle3", str(folder)))
    return RecentRequests([_question(kind, text) for kind, text in texts], drafters)


def _texts(config: Config, now: float, *, held_out_alone: bool) -> Iterator[LearnedText]:
    """Newest first. held_out_alone: only those that no version has learned from."""
    ring, learning = open_ring(config), config.draft.learning
    seen = set[str]()
    for path in reversed(ring.paths()):
        text = ring.load(path)
        if text is None or text.finished_at < now - learning.max_age_s or text.prompt_or_request in seen:
            continue
        seen.add(text.prompt_or_request)
        if is_held_out(text, learning.held_out_share) or not held_out_alone:
            yield msgspec.structs.replace(text, features=_NO_FEATURES)


def _kinds_of(texts: Iterator[LearnedText], per_kind: int | None) -> list[tuple[str, LearnedText]]:
    chosen: list[LearnedText] = []
    counts = Counter[str]()
    for text in texts:
        if len(text.token_ids) - _prompt_len(text) >= _MIN_ANSWER_TOKENS and counts[text.kind] != per_kind:
            counts[text.kind] += 1
            chosen.append(text)
        if len(chosen) == MAX_TEXTS:
            break
    return [
        (text.kind if counts[text.kind] >= min(MIN_TEXTS, per_kind or MIN_TEXTS) else OTHER, text) for text in chosen
    ]


def _prompt_len(text: LearnedText) -> int:
    """The prompt's length, at least a token: of a long text the end alone is kept, and an answer begins somewhere."""
    return max(1, text.prompt_len)


def _question(kind: str, text: LearnedText) -> Question:
    length = _prompt_len(text)
    return Question(kind, text.token_ids[:length], _GREEDY, text.token_ids[length:])


def _nothing(config: Config, serving: int) -> str:
    learning = config.draft.learning
    if not learning.enabled:
        return (
            "nothing is kept of requests, as draft.learning.enabled is false: give the configuration of services that "
            "learn (--config, --set), or name prompts (--prompts)"
        )
    folder: Path = config.learning_folder / "ring"
    what = f"held-out text that version {serving} has not learned from" if serving else "text"
    return (
        f"{folder} holds no {what} of the last {learning.max_age_s:g} s that can be read: send requests that may be "
        "learned from (speculation.learn, no cache_salt), on the machine of the service that drafts, or name prompts "
        "(--prompts)"
    )
