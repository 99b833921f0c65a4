"""When a replica that says nothing counts as lost."""

from __future__ import annotations


class SilenceWatch:
    """Told of everything that is heard, and asked every `check_interval_s`. Time is an argument."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._heard_s = self._checked_s = now_s

    @property
    def check_interval_s(self) -> float:
        return self._timeout_s / 4

    def heard(self, now_s: float) -> None:
        self._heard_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Whether the replica has been silent for too long."""
        slept_s, self._checked_s = now_s - self._checked_s, now_s
        if slept_s > 2 * self.check_interval_s:
            # This process stood still itself (frozen, swapped out): what was said meanwhile is yet to be read.
            self._heard_s = now_s
        return now_s - self._heard_s > self._timeout_s
