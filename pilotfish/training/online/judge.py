"""Heads beside each other on the same texts. What a version came to on a text is kept: it may be asked again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from pilotfish.training.data.samples import Sample
from pilotfish.training.online.examination import Pair
from pilotfish.training.online.heads import length
from pilotfish.training.trainee import Trainee

CANDIDATE = -1
"""A version that has no number yet."""


@dataclass(frozen=True, slots=True)
class JudgedText:
    """A text to judge by."""

    key: Hashable
    kind: str
    load: Callable[[], Sample | None]
    """None: it is gone, or cannot be used."""


class Judge:
    """Lengths by version and text."""

    def __init__(self, open_version: Callable[[int], Trainee], *, bfloat16: bool) -> None:
        """open_version: the head of a version, to be judged; raises ModelError for one that is damaged."""
        self._open_version = open_version
        self._bfloat16 = bfloat16
        self._lengths: dict[int, dict[Hashable, float | None]] = {}

    def pairs(self, before: int, after: int, items: Sequence[JudgedText]) -> list[tuple[JudgedText, Pair]]:
        """The items that say something of both versions, each with its pair. Raises as open_version does."""
        first, second = self._of(before, items), self._of(after, items)
        found = []
        for item in items:
            one, other = first[item.key], second[item.key]
            if one is not None and other is not None:
                found.append((item, Pair(item.kind, one, other)))
        return found

    def name_candidate(self, number: int) -> None:
        """The candidate that was judged last is this version."""
        self._lengths[number] = self._lengths.pop(CANDIDATE, {})

    def keep(self, versions: Collection[int], keys: Collection[Hashable]) -> None:
        """Forget what other versions came to, and on other texts."""
        self._lengths = {
            version: {key: each for key, each in known.items() if key in keys}
            for version, known in self._lengths.items()
            if version in versions
        }

    def _of(self, version: int, items: Sequence[JudgedText]) -> dict[Hashable, float | None]:
        known = self._lengths.setdefault(version, {})
        if missing := [item for item in items if item.key not in known]:
            head = self._open_version(version)
            for item in missing:
                sample = item.load()
                known[item.key] = None if sample is None else length(head, sample, bfloat16=self._bfloat16)
        return known
