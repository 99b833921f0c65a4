"""What a step takes by the token rows in it, as measured. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

_WEIGHT = 0.25
"""Of the latest step in the average of its bucket."""
_BUCKETS_PER_DOUBLING = 2


class StepCurve:
    """Averages in buckets of row counts; between them the least that a roofline allows.

    Nothing is forgotten: where all steps are of one size by now, only earlier ones tell what half of it would take.
    A line through the latest steps would call all of it fixed. A size that was never measured is taken for cheap, so
    that it is tried.
    """

    def __init__(self) -> None:
        self._points: dict[int, tuple[float, float]] = {}
        """Rows and nanoseconds of each bucket, on average."""
        self._num_steps: dict[int, int] = {}
        """That were measured in each."""
        self._buckets: list[int] = []
        """Ascending."""

    def add(self, num_rows: int, step_ns: int) -> None:
        """A step has ended; one without rows says nothing."""
        if not num_rows or not step_ns:
            return
        bucket = _bucket(num_rows)
        if bucket not in self._points:
            insort(self._buckets, bucket)
            self._points[bucket], self._num_steps[bucket] = (float(num_rows), float(step_ns)), 1
            return
        rows, nanoseconds = self._points[bucket]
        self._num_steps[bucket] += 1
        if self._num_steps[bucket] == 2:
            nanoseconds = min(nanoseconds, step_ns)  # the first one of a size may have compiled something
        self._points[bucket] = (rows + _WEIGHT * (num_rows - rows), nanoseconds + _WEIGHT * (step_ns - nanoseconds))

    def step_ns(self, num_rows: float) -> float:
        """Of so many rows: as the smallest one known before it, on the last slope beyond what was measured. 0 before
        the first step."""
        points = self._around(num_rows)
        if len(points) < 2:
            return points[0][1] if points else 0.0
        (low, low_ns), (high, high_ns) = points
        if num_rows <= high:
            # No less than fewer rows take, and than its share of what more of them do. Time that falls with rows is
            # noise, or was measured while contexts were shorter.
            return min(high_ns, max(low_ns, high_ns * num_rows / high))
        return high_ns + max(0.0, (high_ns - low_ns) / (high - low)) * (num_rows - high)

    def interpolated_ns(self, num_rows: float) -> float:
        """Of so many rows: on the line between the sizes around them that were measured more than once, which is never
        less than a roofline takes; beyond, as the nearest one. 0 where there is none."""
        known = [self._points[bucket] for bucket in self._buckets if self._num_steps[bucket] > 1]
        above = bisect_left(known, num_rows, key=lambda point: point[0])
        if above == 0 or above == len(known):
            return known[min(above, len(known) - 1)][1] if known else 0.0
        (low, low_ns), (high, high_ns) = known[above - 1], known[above]
        return low_ns + (high_ns - low_ns) * (num_rows - low) / (high - low)

    @property
    def fixed_ns(self) -> float:
        """Before the first row, nearly: mostly reading the weights; 0 before the first step."""
        return self.step_ns(1)

    def _around(self, num_rows: float) -> list[tuple[float, float]]:
        """The measured points at or below and above so many rows; the first one alone, or the last two, beyond."""
        points, buckets = self._points, self._buckets
        if not buckets or num_rows <= points[buckets[0]][0]:
            return [points[bucket] for bucket in buckets[:1]]
        above = bisect_left(buckets, num_rows, key=lambda bucket: points[bucket][0])
        above = min(above, len(buckets) - 1)
        return [points[bucket] for bucket in buckets[max(0, above - 1) : above + 1]]


def _bucket(num_rows: int) -> int:
    return round(_BUCKETS_PER_DOUBLING * math.log2(num_rows))
