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
        self._first_ns = list(step_ns)
        """As the cells began."""
        self._scale = 1.0
        """Moving average of what steps take over what their cells began with: what no step has visited follows it."""
        self._visited: set[int] = set()
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
        if step_ns <= 0:
            return
        cell = ROWS[bisect_right(ROWS, num_rows) - 1]
        at = bisect_left(self._rows, cell)
        expected_ns = self.step_ns(num_rows)
        if expected_ns > 0:
            step_ns = min(step_ns, _LONGEST * expected_ns)
        self._visited.add(cell)
        if at == len(self._rows) or self._rows[at] != cell:
            # The step, as if it had the rows of its cell.
            cell_ns = step_ns * self.step_ns(cell) / expected_ns if expected_ns > 0 else step_ns
            self._rows.insert(at, cell)
            self._ns.insert(at, cell_ns)
            self._first_ns.insert(at, cell_ns / self._scale)
            self._publish()
            return
        self._ns[at] *= 1 + _WEIGHT * (step_ns / expected_ns - 1)
        self._scale += _WEIGHT * (step_ns / interpolate(self._rows, self._first_ns, num_rows) - self._scale)
        for index, (rows, first_ns) in enumerate(zip(self._rows, self._first_ns, strict=True)):
            if rows not in self._visited:
                self._ns[index] = first_ns * self._scale
        told = zip(self._ns, self.table.step_ns, strict=True)
        if any(abs(ns - told_ns) > _PUBLISHED_CHANGE * told_ns for ns, told_ns in told):
            self._publish()

    def _publish(self) -> None:
        self.table = StepTable(tuple(self._rows), tuple(round(ns) for ns in self._ns))
        """What peers are told: another one when a cell was added or has moved."""
