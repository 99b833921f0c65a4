"""Who asks for an answer, whatever the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from orchestrator.requests.identity import RequestIdentity
from pilotfish.errors import DeadlineExceededError
from pilotfish.security.allowance import Allowance

_ALIAS_KEY = secrets.token_bytes(16)

_CLOCK_MARGIN_S = 0.01
"""Time by which the clocks of gRPC and of the event loop may be ahead."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks, since when, and until when."""

    client_id: str
    """The fair queue's notion of one client."""
    arrival_ns: int
    """Time of arrival, on time.monotonic_ns()'s clock."""
    timeout_s: float | None = None
    """What was left of the call's deadline on arrival; None: it has none."""
    identity: RequestIdentity = field(default_factory=lambda: RequestIdentity.of({}))
    allowance: Allowance | None = None
    """What the caller's API key lets it use; None: as much as there is."""

    @property
    def alias(self) -> str:
        """The client's name towards replicas, from which they cannot find out who it is."""
        name = self.client_id.encode(errors="surrogatepass")
        return hashlib.blake2b(name, key=_ALIAS_KEY, digest_size=8).hexdigest()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """One request of the caller's, as long as the block lasts. Raises ResourceExhaustedError where its key's limits
        are reached."""
        with contextlib.nullcontext() if self.allowance is None else self.allowance.request():
            yield

    @contextlib.contextmanager
    def preparation(self) -> Iterator[None]:
        """What has to be done before it is known what is requested. Raises as `request`."""
        with contextlib.nullcontext() if self.allowance is None else self.allowance.preparation():
            yield

    @contextlib.asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Ends the block, with DeadlineExceededError, when the call's time is up.

        One block holds all that is done for a call, from its arrival to the last byte of its answer. Inside it a passed
        deadline is a cancellation; `reason_of` distinguishes it from others.
        """
        if self.timeout_s is None:
            yield
            return
        try:
            async with asyncio.timeout(self._left_s) as scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._lateness from None

    def reason_of(self, error: BaseException) -> BaseException:
        """What a request that ended with `error` failed of: DeadlineExceededError if it was cancelled when its
        time was up."""
        is_late = self.timeout_s is not None and self._left_s <= _CLOCK_MARGIN_S
        return self._lateness if is_late and isinstance(error, asyncio.CancelledError) else error

    @property
    def _left_s(self) -> float:
        assert self.timeout_s is not None, "without a deadline there is no end"
        return self.timeout_s - (time.monotonic_ns() - self.arrival_ns) / 1e9

    @property
    def _lateness(self) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"the deadline passed before the answer was complete, after {self.timeout_s:.3g} s"
        )
