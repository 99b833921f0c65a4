"""What of a step's time is fixed, and what each row adds: a line through the latest steps. Pure."""

from __future__ import annotations

_DECAY = 0.98
"""Of a step's weight, with each step after it: some fifty count."""
_MIN_SPREAD = 0.05
"""Of the row counts, relative to their mean: below it they tell nothing about a single row."""


class StepTrend:
    """Weighted least squares over (rows, nanoseconds)."""

    def __init__(self) -> None:
        self._weight = self._rows = self._ns = 0.0
        self._rows_rows = self._rows_ns = 0.0

    def add(self, num_rows: int, step_ns: int) -> None:
        """A step has ended; one without rows says nothing."""
        if not num_rows or not step_ns:
            return
        self._weight = _DECAY * self._weight + 1
        self._rows = _DECAY * self._rows + num_rows
        self._ns = _DECAY * self._ns + step_ns
        self._rows_rows = _DECAY * self._rows_rows + num_rows * num_rows
        self._rows_ns = _DECAY * self._rows_ns + num_rows * step_ns

    @property
    def row_ns(self) -> float:
        """What a row adds; 0 while all steps had about as many."""
        if not self._weight:
            return 0.0
        mean = self._rows / self._weight
        spread = self._rows_rows / self._weight - mean * mean
        if spread < (_MIN_SPREAD * mean) ** 2:
            return 0.0
        slope = (self._rows_ns / self._weight - mean * self._ns / self._weight) / spread
        # Neither less than nothing, nor so much that nothing is left for the weights.
        return min(max(0.0, slope), self._ns / self._rows)

    @property
    def fixed_ns(self) -> float:
        """What a step takes before its first row: mostly reading the weights; 0 before the first step."""
        if not self._weight:
            return 0.0
        return (self._ns - self.row_ns * self._rows) / self._weight
