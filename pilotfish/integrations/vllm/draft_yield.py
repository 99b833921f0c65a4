"""What asking for drafts yields a row of the batch, by the number of tokens that are asked for."""

from __future__ import annotations

from collections.abc import Sequence

_FADING = 1 - 1 / 128
"""Of what is known, with every row: a lookup hits in bursts, so that many rows have to count."""
_PRIOR_ROWS = 4.0
"""What the position before tells of one counts as much as so many rows: of positions that were not asked for lately
nothing else is known."""


class DraftYield:
    """Of rows that were asked for, whether a draft came or not. Pure.

    By position, so that drafts of one length tell what others would have yielded.
    """

    def __init__(self, max_tokens: int) -> None:
        """max_tokens: asked for at most."""
        self.num_rows = 0
        """Rows that it knows of."""
        self._drafted = _Lengths(max_tokens)
        self._accepted = _Lengths(max_tokens)

    def add(self, num_requested: int, drafts: Sequence[tuple[int, int]]) -> None:
        """One step. drafts: of each row, the tokens drafted, and those accepted."""
        self.num_rows += len(drafts)
        self._drafted.add(num_requested, [num_drafted for num_drafted, _ in drafts])
        self._accepted.add(num_requested, [num_accepted for _, num_accepted in drafts])

    def num_drafted(self, num_requested: int) -> float:
        """Draft tokens that come to a row where so many are asked for."""
        return self._drafted.mean(num_requested)

    def num_accepted(self, num_requested: int) -> float:
        """Of these, the accepted ones."""
        return self._accepted.mean(num_requested)


class _Lengths:
    """How long something gets, told by how often each position is passed by those that reach it."""

    def __init__(self, max_length: int) -> None:
        self._reached = [0.0] * max_length
        self._passed = [0.0] * max_length

    def add(self, limit: int, lengths: Sequence[int]) -> None:
        """limit: none of the lengths could be more."""
        fading = _FADING ** len(lengths)
        self._reached = [count * fading for count in self._reached]
        self._passed = [count * fading for count in self._passed]
        for position in range(limit):
            self._reached[position] += sum(length >= position for length in lengths)
            self._passed[position] += sum(length > position for length in lengths)

    def mean(self, limit: int) -> float:
        """Of lengths that cannot be more."""
        chance, passing, mean = 0.0, 1.0, 0.0
        for position in range(limit):
            weight = _PRIOR_ROWS if position else 0.0
            reached = self._reached[position] + weight
            chance = (self._passed[position] + weight * chance) / reached if reached else 0.0
            passing *= chance
            mean += passing
        return mean
