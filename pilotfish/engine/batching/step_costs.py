"""What a step takes by the token rows in it: measured at the start, kept current by every step. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from pilotfish.step_table import StepTable, interpolate

ROWS = (*range(1, 13), *(size for power in range(4, 14) for size in (1 << power, 3 << (power - 1))))
"""Cells of the table: steps of up to 12 rows take what a row tile takes, larger ones grow slowly."""
_WEIGHT = 0.1
"""Of the latest step in the average of its cell."""
_SCALE_WEIGHT = 0.02
"""Of the latest step in what corrects the other cells: a geometric mean, so that one that stalled moves them little."""
_PUBLISHED_CHANGE = 0.03
"""Of a cell, from what peers were told: the averages scatter by as much."""
_SAMPLED_SEQUENCES = 8
"""In a sampled step: the table knows rows alone."""


class StepCosts:
    """Nanoseconds by rows: an average for each cell that steps have visited, and one factor for the others, so that
    they follow those. In between see step_table.interpolate."""

    def __init__(self, rows: Sequence[int] = (), step_ns: Sequence[float] = ()) -> None:
        """rows: ascending, each with what a step of so many takes. Without any, all is learned from the steps."""
        self._rows = list(rows)
        self._first_ns = list(step_ns)
        self._ns = list(step_ns)
        self._visited: set[int] = set()
        self._scale = 1.0
        """What steps take over what they took at first."""
        self._publish()

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
        return interpolate(self._rows, self._ns, num_rows)

    def _update(self, num_rows: int, step_ns: float) -> None:
        cell = ROWS[bisect_right(ROWS, num_rows) - 1]
        at = bisect_left(self._rows, cell)
        self._visited.add(cell)
        if at == len(self._rows) or self._rows[at] != cell:
            self._rows.insert(at, cell)
            self._first_ns.insert(at, step_ns / self._scale)
            self._ns.insert(at, step_ns)
            self._publish()
        elif step_ns > 0 and (expected_ns := self.step_ns(num_rows)) > 0:
            # The step, as if it had the rows of its cell.
            self._ns[at] += _WEIGHT * (step_ns / expected_ns - 1) * self._ns[at]
            first_ns = interpolate(self._rows, self._first_ns, num_rows)
            self._scale *= (step_ns / (self._scale * first_ns)) ** _SCALE_WEIGHT
            if _has_moved(self._ns[at], self.table.step_ns[at]) or _has_moved(self._scale, self._published_scale):
                self._publish()

    def _publish(self) -> None:
        for at, cell in enumerate(self._rows):
            if cell not in self._visited:
                self._ns[at] = self._scale * self._first_ns[at]
        self.table = StepTable(tuple(self._rows), tuple(round(ns) for ns in self._ns))
        """What peers are told: another one when a cell was added or has moved."""
        self._published_scale = self._scale


def _has_moved(now: float, published: float) -> bool:
    return abs(now - published) > _PUBLISHED_CHANGE * published
