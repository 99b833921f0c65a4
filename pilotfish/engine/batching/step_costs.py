"""What a step takes by the token rows in it: measured at the start, kept current by every step. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

ROWS = (*range(1, 13), *(size for power in range(4, 14) for size in (1 << power, 3 << (power - 1))))
"""Cells of the table: steps of up to 12 rows take what a row tile takes, larger ones grow slowly."""
_WEIGHT = 0.1
"""Of the latest step in the average of its cell."""
_SAMPLED_SEQUENCES = 8
"""In a sampled step: the table knows rows alone."""


class StepCosts:
    """Nanoseconds by rows: between two cells the least that a roofline allows, so that larger steps are tried; beyond
    the last one on the last slope."""

    def __init__(self, rows: Sequence[int] = (), step_ns: Sequence[float] = ()) -> None:
        """rows: ascending, each with what a step of so many takes. Without any, all is learned from the steps."""
        self._rows = list(rows)
        self._ns = list(step_ns)

    @classmethod
    def sampled(cls, step_s: Callable[[int, int], float], max_rows: int) -> StepCosts:
        """Of a model of costs, seconds by sequences and rows, for steps of up to max_rows."""
        rows = [size for size in ROWS if size <= max_rows]
        return cls(rows, [1e9 * step_s(min(size, _SAMPLED_SEQUENCES), size) for size in rows])

    def add(self, num_rows: int, num_prefill_rows: int, step_ns: float) -> float:
        """A step has ended; returns what its prefills made it longer: all but the price of the other rows."""
        if num_rows == num_prefill_rows:
            return step_ns
        if num_prefill_rows:
            return max(0.0, step_ns - self.step_ns(num_rows - num_prefill_rows))
        self._update(num_rows, step_ns)
        return 0.0

    def step_ns(self, num_rows: float) -> float:
        """Of a step of so many rows; 0 as long as nothing is known."""
        rows, known = self._rows, self._ns
        if len(rows) < 2 or num_rows <= rows[0]:
            return known[0] if rows else 0.0
        at = min(bisect_left(rows, num_rows), len(rows) - 1)
        if num_rows <= rows[at]:
            return min(known[at], max(known[at - 1], known[at] * num_rows / rows[at]))
        # Past the table noise must not make a larger step the shorter one.
        slope = max(0.0, known[at] - known[at - 1]) / (rows[at] - rows[at - 1])
        return known[at] + slope * (num_rows - rows[at])

    def _update(self, num_rows: int, step_ns: float) -> None:
        cell = ROWS[bisect_right(ROWS, num_rows) - 1]
        at = bisect_left(self._rows, cell)
        if at == len(self._rows) or self._rows[at] != cell:
            self._rows.insert(at, cell)
            self._ns.insert(at, step_ns)
        elif step_ns > 0 and self._ns[at] > 0:
            # The step, as if it had the rows of its cell.
            self._ns[at] += _WEIGHT * (step_ns * self._ns[at] / self.step_ns(num_rows) - self._ns[at])
