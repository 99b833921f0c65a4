"""What the holder of one API key may still use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from pilotfish.errors import ResourceExhaustedError
from pilotfish.security.api_key import ApiKey


class TokenBucket:
    """Fills up in a minute; may be overdrawn. Time is in seconds on any clock that never goes back."""

    def __init__(self, now_s: float) -> None:
        self._share = 1.0
        """Share of a minute's worth that is left: outlives a change of the limit."""
        self._updated_s = now_s

    def wait_s(self, per_min: int, now_s: float) -> float:
        """Time until something is left; 0: there is."""
        self._refill(now_s)
        # One whole unit: a bucket that holds a hundredth of a request has none.
        return max(0.0, (1 / per_min - self._share) * 60.0)

    def take(self, amount: float, per_min: int, now_s: float) -> None:
        """Take so much, even what is not there."""
        self._refill(now_s)
        self._share -= amount / per_min

    def _refill(self, now_s: float) -> None:
        self._share = min(1.0, self._share + (now_s - self._updated_s) / 60.0)
        self._updated_s = now_s


_RETRY_S = 1.0
"""Time to wait where nobody knows when a place becomes free."""


class Allowance:
    """Use of one key, in this process: with several orchestrators, each gives as much. Used from one event loop."""

    def __init__(self, key: ApiKey, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = key
        """Replace it when its limits change: what is used stays counted."""
        self.num_requests = 0
        """Requests served or waiting."""
        self._clock = clock
        self._requests = TokenBucket(clock())
        self._tokens = TokenBucket(clock())

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """One request, as long as the block lasts. Raises ResourceExhaustedError, with when to try again."""
        with self._place():
            self._take_request()
            yield

    @contextlib.contextmanager
    def preparation(self) -> Iterator[None]:
        """What comes before requests, such as reading a prompt: counts among those at once, and as a request if it
        fails, for then none follows. Raises as `request`."""
        with self._place():
            try:
                yield
            except BaseException:
                self._take_request()
                raise

    def spend(self, num_tokens: int) -> None:
        """Count tokens of a request that was let in."""
        per_min = self.key.limits.tokens_per_min
        if per_min:
            self._tokens.take(num_tokens, per_min, self._clock())

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        self._check()
        self.num_requests += 1
        try:
            yield
        finally:
            self.num_requests -= 1

    def _take_request(self) -> None:
        if self.key.limits.requests_per_min:
            self._requests.take(1, self.key.limits.requests_per_min, self._clock())

    def _check(self) -> None:
        limits, now_s = self.key.limits, self._clock()
        if limits.max_concurrent_requests and self.num_requests >= limits.max_concurrent_requests:
            limit = limits.max_concurrent_requests
            raise self._exhausted(f"{limit} requests at once are the limit of API key {self.key.name}", _RETRY_S)
        for bucket, per_min, what in (
            (self._requests, limits.requests_per_min, "requests"),
            (self._tokens, limits.tokens_per_min, "tokens"),
        ):
            wait_s = bucket.wait_s(per_min, now_s) if per_min else 0.0
            if wait_s > 0:
                raise self._exhausted(f"{per_min} {what} a minute are the limit of API key {self.key.name}", wait_s)

    def _exhausted(self, problem: str, retry_after_s: float) -> ResourceExhaustedError:
        error = ResourceExhaustedError(f"{problem}; try again later")
        error.retry_after_s = retry_after_s
        return error
