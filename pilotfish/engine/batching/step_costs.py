"""What a step takes by the token rows in it: measured at the start, kept current by every step. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from pilotfish.step_table import StepTable, interpolate

ROWS = (*range(1, 13), *(size for power in range(4, 14) for size in (1 << power, 3 << (power - 1))))
"""Cells of the table: close together where drafts change what a step takes."""
_WEIGHT = 0.1
"""Weight of the latest step in the scale of all cells: the machine is busier or less so."""
_PREFILL_WEIGHT = 0.02
"""Weight of the latest step with prefills."""
_CELL_WEIGHT = 0.02
"""Weight of the latest step in its cell alone: a few steps that stalled must not keep drafts away from it."""
_LONGEST = 2.0
"""A step counts as at most this many times what was expected: some stall."""
_PUBLISHED_CHANGE = 0.03
"""Change of a cell after which the table is published again: averages scatter by as much."""


class StepCosts:
    """Nanoseconds by rows: every step moves all cells alike, and its own a little beside the others. In between see
    step_table.interpolate."""

    def __init__(self, rows: Sequence[int] = (), step_ns: Sequence[float] = ()) -> None:
        """rows: ascending, each with what a step of so many takes. Without any, all is learned from the steps."""
        self._rows = list(rows)
        self._cell_ns = list(step_ns)
        self._scale = 1.0
        """Factor over all cells: how busy the machine is."""
        self.table = StepTable()
        """The published table: another one when a cell was added or has moved."""
        self._publish()

    @classmethod
    def sampled(cls, step_s: Callable[[int, int], float], max_rows: int) -> StepCosts:
        """The costs of a model, seconds by sequences (8 at most: the table knows rows alone) and rows up to
        max_rows."""
        rows = [size for size in ROWS if size <= max_rows]
        return cls(rows, [1e9 * step_s(min(size, 8), size) for size in rows])

    def add(self, num_rows: int, num_prefill_rows: int, step_ns: float) -> float:
        """A step has ended; returns what its prefills made it longer: all but the price of the other rows.

        Of a step with prefills nothing but the scale is learned, and slowly: reading on in a long text costs more.
        """
        if num_rows == num_prefill_rows:
            return step_ns
        if num_prefill_rows:
            self._rescale(num_rows, step_ns, _PREFILL_WEIGHT)
            self._publish()
            return max(0.0, step_ns - self.step_ns(num_rows - num_prefill_rows))
        self._update(num_rows, step_ns)
        return 0.0

    def step_ns(self, num_rows: float) -> float:
        """Duration of a step of so many rows; 0 as long as nothing is known."""
        return self._scale * interpolate(self._rows, self._cell_ns, num_rows)

    def _update(self, num_rows: int, step_ns: float) -> None:
        if step_ns <= 0:
            return
        cell = ROWS[bisect_right(ROWS, num_rows) - 1]
        at = bisect_left(self._rows, cell)
        if at == len(self._rows) or self._rows[at] != cell:
            expected_ns = self.step_ns(num_rows)
            # The step, as if it had the rows of its cell.
            cell_ns = min(step_ns / expected_ns, _LONGEST) * self.step_ns(cell) if expected_ns > 0 else step_ns
            self._rows.insert(at, cell)
            self._cell_ns.insert(at, cell_ns / self._scale)
        else:
            error = self._rescale(num_rows, step_ns, _WEIGHT)
            if num_rows == cell:  # between cells, who knows which of the two is wrong
                self._cell_ns[at] *= 1 + _CELL_WEIGHT * error
        self._publish()

    def _rescale(self, num_rows: int, step_ns: float, weight: float) -> float:
        """Move all cells towards a step; returns by what share it was longer than expected."""
        expected_ns = self.step_ns(num_rows)
        if expected_ns <= 0:
            return 0.0
        error = min(step_ns / expected_ns, _LONGEST) - 1
        self._scale *= 1 + weight * error
        return error

    def _publish(self) -> None:
        published, now = self.table.step_ns, [self._scale * ns for ns in self._cell_ns]
        if len(published) != len(now) or any(
            abs(ns - before_ns) > _PUBLISHED_CHANGE * before_ns for ns, before_ns in zip(now, published, strict=True)
        ):
            self.table = StepTable(tuple(self._rows), tuple(map(round, now)))
