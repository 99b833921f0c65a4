"""The texts of the ring as the trainer knows them: which may be learned from, which are judged by, how often used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.learning.record import LearnedText, is_held_out, request_digest
from pilotfish.learning.ring import Ring

_FADED = 0.01
"""A token that counts less is forgotten."""


@dataclass(slots=True)
class ShelvedText:
    """A text without its features, which stay on the disk."""

    path: Path
    request: str
    """Digest of the request's id."""
    prompt: str
    """Digest of its prompt."""
    kind: str
    num_tokens: int
    """Tokens of the answer."""
    finished_at: float
    is_held_out: bool
    num_uses: int = 0
    """Candidates that learned from it."""

    @property
    def is_new(self) -> bool:
        """Whether no candidate has learned from it."""
        return not self.num_uses


class Shelf:
    """What is in the ring."""

    def __init__(self, ring: Ring, held_out_share: float) -> None:
        self._ring = ring
        self._held_out_share = held_out_share
        self._texts: dict[Path, ShelvedText] = {}
        self.counts: dict[int, float] = {}
        """How often tokens came in the answers that could be learned from, of late: see fade."""
        self.lost: Counter[str] = Counter()
        """Answer tokens by kind that were gone before a candidate had learned from them, since the last candidate."""

    def refresh(self, now: float) -> None:
        """Delete what is too old, take in what has come, forget what is gone."""
        self._ring.prune(now)
        paths = set(self._ring.paths())
        for text in self._new:
            if text.path not in paths:
                self.lost[text.kind] += text.num_tokens
        self._texts = {path: text for path, text in self._texts.items() if path in paths}
        for path, learned in self._ring.read(skip=self._texts):
            self._texts[path] = shelved = self._shelved(path, learned)
            if shelved.is_held_out:
                # Answers to one prompt say the same again, and would make chance look like proof.
                self.remove([each for each in self.held_out if each.prompt == shelved.prompt and each is not shelved])
            else:
                for token_id in learned.token_ids[learned.prompt_len :]:
                    self.counts[token_id] = self.counts.get(token_id, 0) + 1

    @property
    def to_learn(self) -> list[ShelvedText]:
        """Oldest first."""
        return [text for text in self._texts.values() if not text.is_held_out]

    @property
    def _new(self) -> list[ShelvedText]:
        """The part of `to_learn` that no candidate has learned from."""
        return [text for text in self.to_learn if text.is_new]

    @property
    def held_out(self) -> list[ShelvedText]:
        """Never learned from, and the newest of its prompt each; oldest first."""
        return [text for text in self._texts.values() if text.is_held_out]

    def unseen_since(self, at: float) -> list[ShelvedText]:
        """Texts that have come since `at` and that no candidate has learned from, one of each prompt, oldest first."""
        texts = [text for text in self._texts.values() if text.finished_at > at and text.is_new]
        return list({text.prompt: text for text in texts}.values())

    @property
    def num_new_tokens(self) -> int:
        """Answer tokens to learn from that no candidate has learned from."""
        return sum(text.num_tokens for text in self._new)

    def num_come_tokens(self, doubts: Mapping[str, int]) -> float:
        """Those that have come since the last candidate, also what is gone by now; of kinds with n doubts one of 2^n
        counts."""
        come = self.lost.copy()
        for text in self._new:
            come[text.kind] += text.num_tokens
        return sum(num_tokens * 0.5 ** doubts.get(kind, 0) for kind, num_tokens in come.items())

    def fade(self) -> None:
        """What has come so far counts half as much as what comes from now on."""
        self.counts = {token_id: count / 2 for token_id, count in self.counts.items() if count > _FADED}

    def used(self, texts: Sequence[ShelvedText], max_uses: int) -> None:
        """A candidate has learned from the texts. Those that have been used max_uses times are deleted."""
        self.lost.clear()
        for text in texts:
            text.num_uses += 1
        self.remove([text for text in texts if text.num_uses >= max_uses])

    def remove(self, texts: Sequence[ShelvedText]) -> None:
        """Delete texts."""
        self._ring.remove([text.path for text in texts])
        for text in texts:
            self._texts.pop(text.path, None)

    def _shelved(self, path: Path, text: LearnedText) -> ShelvedText:
        return ShelvedText(
            path=path,
            request=request_digest(text.request_id),
            prompt=text.prompt_or_request,
            kind=text.kind,
            num_tokens=len(text.token_ids) - text.prompt_len,
            finished_at=text.finished_at,
            is_held_out=is_held_out(text, self._held_out_share),
        )
