"""What a step takes by the token rows in it: measured at the start, kept current by every step. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from pilotfish.step_table import StepTable, interpolate

ROWS = (*range(1, 13), *(size for power in range(4, 14) for size in (1 << power, 3 << (power - 1))))
"""Cells of the table: steps of up to 12 rows take what a row tile takes, larger ones grow slowly."""
_WEIGHT = 0.1
"""Of the latest step in the average of its cell."""
_LONGEST = 2.0
"""Of what was expected, that a step counts as: some stall."""
_PUBLISHED_CHANGE = 0.03
"""Of a cell, from what peers were told: the averages scatter by as much."""


class StepCosts:
    """Nanoseconds by rows: a moving average for each cell. In between see step_table.interpolate."""

    def __init__(self, rows: Sequence[int] = (), step_ns: Sequence[float] = ()) -> None:
        """rows: ascending, each with what a step of so many takes. Without any, all is learned from the steps."""
        self._rows, self._ns = list(rows), list(step_ns)
        self._visited: set[int] = set()
        """Cells that steps have corrected; the others move with each of them."""
        self._publish()

    @classmethod
    def sampled(cls, step_s: Callable[[int, int], float], max_rows: int) -> StepCosts:
        """Of a model of costs, seconds by sequences (8 at most: the table knows rows alone) and rows up to max_rows."""
        rows = [size for size in ROWS if size <= max_rows]
        return cls(rows, [1e9 * step_s(min(size, 8), size) for size in rows])

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
        return interpolate(self._rows, self._ns, num_rows)

    def _update(self, num_rows: int, step_ns: float) -> None:
        cell = ROWS[bisect_right(ROWS, num_rows) - 1]
        at = bisect_left(self._rows, cell)
        self._visited.add(cell)
        if at == len(self._rows) or self._rows[at] != cell:
            self._rows.insert(at, cell)
            self._ns.insert(at, step_ns)
            self._publish()
        elif step_ns > 0 and (expected_ns := self.step_ns(num_rows)) > 0:
            # The step, as if it had the rows of its cell.
            change = 1 + _WEIGHT * (min(step_ns / expected_ns, _LONGEST) - 1)
            self._ns = [
                ns * change if rows == cell or rows not in self._visited else ns
                for rows, ns in zip(self._rows, self._ns, strict=True)
            ]
            told = zip(self._ns, self.table.step_ns, strict=True)
            if any(abs(ns - told_ns) > _PUBLISHED_CHANGE * told_ns for ns, told_ns in told):
                self._publish()

    def _publish(self) -> None:
        self.table = StepTable(tuple(self._rows), tuple(round(ns) for ns in self._ns))
        """What peers are told: another one when a cell was added or has moved."""
