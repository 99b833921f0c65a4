"""The largest of the latest values."""

from __future__ import annotations


class RecentPeak:
    """Over the last one to two windows of time. Rises at once; time is an argument."""

    __slots__ = ("_before", "_latest", "_start_s", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._start_s = float("-inf")
        self._before = self._latest = 0

    def at(self, now_s: float) -> int:
        """0 before the first value, and where the last one is of two windows ago."""
        age_s = now_s - self._start_s
        if age_s >= 2 * self._window_s:
            return 0
        return self._latest if age_s >= self._window_s else max(self._before, self._latest)

    def add(self, value: int, now_s: float) -> None:
        age_s = now_s - self._start_s
        if age_s >= self._window_s:
            self._before = self._latest if age_s < 2 * self._window_s else 0
            self._latest, self._start_s = 0, now_s
        self._latest = max(self._latest, value)
