"""So many a minute, with as many at once."""

from __future__ import annotations


class TokenBucket:
    """Fills up in a minute; may be overdrawn. Time is in seconds on any clock that never goes back."""

    def __init__(self, now_s: float) -> None:
        self._share = 1.0
        """Of a minute's worth that is left: outlives a change of the limit."""
        self._updated_s = now_s

    def wait_s(self, per_min: int, now_s: float) -> float:
        """Until something is left; 0: there is."""
        self._refill(now_s)
        # One whole unit: a bucket that holds a hundredth of a request has none.
        return max(0.0, (1 / per_min - self._share) * 60.0)

    def take(self, amount: float, per_min: int, now_s: float) -> None:
        """Also what is not there."""
        self._refill(now_s)
        self._share -= amount / per_min

    def _refill(self, now_s: float) -> None:
        self._share = min(1.0, self._share + (now_s - self._updated_s) / 60.0)
        self._updated_s = now_s
