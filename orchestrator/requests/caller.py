"""Who asks for an answer, whatever the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from pilotfish.errors import DeadlineExceededError
from pilotfish.security.allowance import Allowance
from pilotfish.telemetry.tracing import NO_CONTEXT, RemoteContext


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks, since when, and until when."""

    client_id: str
    """The fair queue's notion of one client."""
    arrival_ns: int
    """On time.monotonic_ns()'s clock."""
    timeout_s: float | None = None
    """What is left of the call's deadline; None: it has none."""
    trace: RemoteContext = NO_CONTEXT
    """The trace that the call belongs to."""
    allowance: Allowance | None = None
    """What the caller's API key lets it use; None: as much as there is."""

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
        """Ends the block, with DeadlineExceededError, when the call's time is up."""
        if self.timeout_s is None:
            yield
            return
        left_s = self.timeout_s - (time.monotonic_ns() - self.arrival_ns) / 1e9
        try:
            async with asyncio.timeout(left_s) as scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise DeadlineExceededError(
                f"the deadline passed before the answer was complete, after {self.timeout_s:.3g} s"
            ) from None
