"""How much of requests' bodies is in memory at once, those of HTTP requests and of gRPC calls."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from pilotfish.config import OrchestratorConfig
from pilotfish.errors import ResourceExhaustedError

UNCOUNTED_BYTES = 64 * 1024
"""Bytes of each body that are not counted: about what a connection holds anyway. Usual requests are always served."""
_RETRY_S = 1.0
_MIN_MESSAGE_BYTES = 4 * 1024 * 1024
"""Least limit of a gRPC message: up to here our own error says that a prompt is too long, beyond it gRPC's."""


def max_message_bytes(config: OrchestratorConfig) -> int:
    """The largest message of a gRPC call."""
    return max(config.max_prompt_bytes, _MIN_MESSAGE_BYTES)


class BodyBudget:
    """Memory for the bodies of all requests of a server. A client may hold as much as is free: half of all if it is
    alone, and whoever comes next finds room, however slowly bodies are sent."""

    @classmethod
    def of(cls, config: OrchestratorConfig) -> BodyBudget:
        """An orchestrator's: any one request has room while no other is large."""
        # While a message is taken it counts twice.
        return cls(max(config.http.max_held_body_bytes, 4 * max_message_bytes(config)))

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def holding(self, client: str) -> Iterator[Callable[[int], None]]:
        """Hold a body of the client until the block ends. The yielded function is called with the body's length, as
        often as that changes, and raises ResourceExhaustedError where it is too much."""
        held = 0

        def hold(num_bytes: int) -> None:
            nonlocal held
            more = max(num_bytes - UNCOUNTED_BYTES, 0) - held
            if more > 0 and self._held[client] + more > self._free - more:
                raise _too_much()
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


def _too_much() -> ResourceExhaustedError:
    error = ResourceExhaustedError("too many large requests at once; try again later")
    error.retry_after_s = _RETRY_S
    return error
