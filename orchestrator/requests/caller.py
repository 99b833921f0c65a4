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


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks, since when, and until when."""

    client_id: str
    """The fair queue's notion of one client."""
    arrival_ns: int
    """On time.monotonic_ns()'s clock."""
    timeout_s: float | None = None
    """What is left of the call's deadline; None: it has none."""
    identity: RequestIdentity = field(default_factory=lambda: RequestIdentity.of({}))
    allowance: Allowance | None = None
    """What the caller's API key lets it use; None: as much as there is."""

    @property
    def alias(self) -> str:
        """What replicas know the client as, who cannot tell from it who that is."""
        name = self.client_id.encode(errors="surrogatepass")
        return hashlib.blake2b(name, key=_ALIAS_KEY, digest_size=8).hexdigest()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """One request of the caller's, as long as the block lasts. Raises ResourceExhaustedError where its key's limits
        are reached."""
        with contextlib.nullcontext() if self.allowance is None else self.allowance.request():
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
