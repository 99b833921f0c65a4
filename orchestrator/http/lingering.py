"""The end of an HTTP connection whose client still sends."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

_MAX_LINGER_S = 5.0
_MAX_DISCARDED_BYTES = 32_000_000


class Lingering:
    """Closes a connection for writing, and for reading when its client is done, or too long at it.

    A connection that is closed over unread bytes is reset, and its answer may be lost with it (RFC 9112, 9.6). This is
    the transport of answers that end before their requests do.
    """

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._transport = transport
        self._flow = flow
        self._num_discarded_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_begun = False

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self.is_begun or self._transport.is_closing()

    def close(self) -> None:
        """Nothing of the answer follows. Idempotent."""
        if self.is_closing():
            return
        self.is_begun = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._flow.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(_MAX_LINGER_S, self._transport.close)

    def discard(self, num_bytes: int) -> None:
        """The client sent more of what nobody reads."""
        self._num_discarded_bytes += num_bytes
        if self._num_discarded_bytes > _MAX_DISCARDED_BYTES:
            self._transport.abort()

    def end(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
