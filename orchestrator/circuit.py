"""When to leave a failing replica alone, and when to try it again."""

from __future__ import annotations

_FAILURES_TO_OPEN = 3
_TOGETHER_S = 0.05
"""Failures this close together are one: a stall of a moment fails every request that is under way."""
_FIRST_PAUSE_S = 0.5
_MAX_PAUSE_S = 30.0


class Circuit:
    """Opens after some failures in a row, for pauses that double; one trial ends each. Time is an argument."""

    def __init__(self) -> None:
        self._num_failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self._open_until_s = float("-inf")
        self._last_failure_s = float("-inf")

    def allows(self, now_s: float) -> bool:
        return now_s >= self._open_until_s

    def failed(self, now_s: float) -> bool:
        """Count a failure; True if it opens the circuit."""
        if now_s - self._last_failure_s < _TOGETHER_S:
            return False
        self._last_failure_s = now_s
        self._num_failures += 1
        if self._num_failures < _FAILURES_TO_OPEN or not self.allows(now_s):
            return False
        self._open_until_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        return True

    def succeeded(self) -> bool:
        """Count a success; True if it ends a time of failures that had opened the circuit."""
        had_opened = self._num_failures >= _FAILURES_TO_OPEN
        self._num_failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self._open_until_s = float("-inf")
        return had_opened
