"""How much of requests' bodies is in memory at once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from pilotfish.errors import ResourceExhaustedError

UNCOUNTED_BYTES = 64 * 1024
"""Of each body: about what a connection holds anyway. Usual requests are served whatever large ones take."""
_RETRY_S = 1.0


class BodyBudget:
    """Of all requests of a server. A client may hold as much as is free: half of all if it is alone, and whoever comes
    next finds room, however slowly bodies are sent."""

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def holding(self, client: str) -> Iterator[Callable[[int], None]]:
        """Until the block ends, a body of the client is held. What it gets is told how long the body is so far, and
        raises ResourceExhaustedError where that is too much."""
        held = 0

        def hold(num_bytes: int) -> None:
            nonlocal held
            more = max(num_bytes - UNCOUNTED_BYTES, 0) - held
            if more and self._held[client] + more > self._free - more:
                error = ResourceExhaustedError("too many large requests at once; try again later")
                error.retry_after_s = _RETRY_S
                raise error
            held += more
            self._free -= more
            self._held[client] += more

        try:
            yield hold
        finally:
            self._free += held
            self._held[client] -= held
            if not self._held[client]:
                del self._held[client]
