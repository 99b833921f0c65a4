"""Statistics of the latest values that one outlier does not move."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

_SIZE = 9
"""Five of them have to agree on a change: a slow round or two are ignored, a new load is followed at once."""


class MedianWindow:
    """The lower median of the last few values; None before the first."""

    __slots__ = ("_ordered", "_recent", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        self._recent: deque[float] = deque(maxlen=_SIZE)
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, value: float) -> None:
        if len(self._recent) == self._recent.maxlen:
            del self._ordered[bisect_left(self._ordered, self._recent[0])]
        self._recent.append(value)
        insort(self._ordered, value)
        self.value = self._ordered[(len(self._ordered) - 1) // 2]


class ClippedAverage:
    """An exponential moving average that one outlier hardly moves; None before the first value.

    Unlike a median it tells what a mixture of two costs: drafts that were ready and drafts that were not.
    """

    __slots__ = ("_deviation", "_weight", "num_values", "value")

    def __init__(self, weight: float = 0.1) -> None:
        """weight: of the latest value; about 2 / weight values count."""
        self._weight = weight
        self.num_values = 0
        self._deviation = 0.0
        self.value: float | None = None

    def add(self, value: float) -> None:
        self.num_values += 1
        if self.value is None:
            self.value = value
            self._deviation = abs(value) / 2
            return
        weight = max(self._weight, 1 / self.num_values)
        difference = value - self.value
        limit = 3 * self._deviation
        # The deviation learns from what is cut: a new level is believed after a few values.
        self._deviation += weight * (abs(difference) - self._deviation)
        self.value += weight * max(-limit, min(limit, difference))
