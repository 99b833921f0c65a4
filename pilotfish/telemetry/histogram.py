"""A histogram that costs a quarter of a microsecond to add to: what is observed once per token needs one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

LATENCY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of whole requests and of their parts."""
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper bounds of the time of one token."""
COUNT_BOUNDS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
"""Upper bounds of tokens in a prompt or an answer."""


class Histogram:
    """Counts by upper bound (inclusive, as in Prometheus). Not thread-safe: one event loop adds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: ascending; what is above the last one counts as well."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Of each bound, and of what is above the last; not cumulative."""
        self.total = 0.0
        """All observed values, added up."""

    def add(self, value: float, times: int = 1) -> None:
        """Observe a value so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Values observed."""
        return sum(self.counts)
