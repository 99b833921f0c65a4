"""One direction of a connection through a fault proxy: what arrives leaves later, in order, or never."""

import asyncio
from collections import deque
from collections.abc import Callable

from tests.support.conditions import Conditions, DelayLine

_MAX_HELD_BYTES = 8 * 2**20
"""More than that is left in the sender's socket, which stops the sender as a full network does."""


class FaultPipe:
    """From `source` to `sink`, both of which its owner sets once they are connected."""

    def __init__(self, conditions: Conditions, seed: int, on_reset: Callable[[], None]) -> None:
        """on_reset is called when `close_after_bytes` have passed, or what was lost cannot be made good."""
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None
        self.num_bytes = 0
        """That have left."""
        self._conditions = conditions
        self._line = DelayLine(seed)
        self._on_reset = on_reset
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes]] = deque()
        """When to leave, and what; empty bytes stand for the end."""
        self._num_held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_sink_full = False
        self._has_lost = False

    def apply(self, conditions: Conditions) -> None:
        """Bytes on their way keep their departure."""
        self._conditions = conditions
        if self._has_lost and not conditions.partitioned:
            self._on_reset()
            return
        self._flush()

    def feed(self, data: bytes) -> None:
        """Take what the source sent; empty bytes: its end."""
        conditions = self._conditions
        if conditions.partitioned:
            self._has_lost = True
            return
        departure_s = self._line.departure_s(conditions, len(data), self._loop.time())
        self._held.append((departure_s, data))
        self._num_held_bytes += len(data)
        self._flush()
        if self._num_held_bytes > _MAX_HELD_BYTES and self.source is not None:
            self.source.pause_reading()

    def pause(self) -> None:
        """The sink takes no more for now."""
        self._is_sink_full = True

    def resume(self) -> None:
        self._is_sink_full = False
        self._flush()

    def close(self) -> None:
        """Forget what is held. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.clear()
        self.source = self.sink = None

    def _flush(self) -> None:
        """Send what is due; come back for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._conditions.frozen or self._conditions.partitioned:
            return
        now_s = self._loop.time()
        while self._held and self.sink is not None and not self._is_sink_full:
            departure_s, data = self._held[0]
            if departure_s > now_s:
                self._timer = self._loop.call_at(departure_s, self._flush)
                return
            self._held.popleft()
            self._send(data)
        if self._num_held_bytes <= _MAX_HELD_BYTES and self.source is not None and not self.source.is_closing():
            self.source.resume_reading()

    def _send(self, data: bytes) -> None:
        assert self.sink is not None
        limit = self._conditions.close_after_bytes
        if limit and self.num_bytes + len(data) >= limit:
            self.sink.write(data[: limit - self.num_bytes])
            self._on_reset()
        elif data:
            self._num_held_bytes -= len(data)
            self.num_bytes += len(data)
            self.sink.write(data)
        else:
            self.sink.close()
