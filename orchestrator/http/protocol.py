"""HTTP/1.1 connections with bounds that uvicorn does not have, and with corners of RFC 9112 that it leaves out."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from orchestrator.http.answering import close_delimited, judged
from orchestrator.http.connections import Connections, network_of
from orchestrator.http.errors import error_body, error_response
from orchestrator.http.flow import Flow
from orchestrator.http.lingering import Lingering
from orchestrator.http.message_bounds import BadMessageError, MessageBounds
from orchestrator.http.request_head import check_head, origin_form, without_offer
from orchestrator.requests.identity import RequestIdentity
from orchestrator.requests.stranger_share import StrangerShare
from pilotfish.config import PublicSecurityConfig

_READ_BYTES = 512
"""Bytes read of one connection at a time: with 2048, 64 connections that send only the smallest chunks held the loop
for 85 ms (measured), with 512 for 20."""
_BODY_READ_BYTES = 65_536
"""Bytes read at a time of what has little to parse: a body whose length is known, or whose chunks are long. Over TLS a
read is a turn of the loop."""
_DISCARD_BYTES = 8192
"""Bytes of a read of what is thrown away."""
_MIN_BODY_SHARE = 7 / 8
"""A read that a body fills to this share makes the next read twice as long."""
_MAX_PIPELINED = 16
"""Requests of one connection that wait for the answers to earlier ones."""


class LimitedConfig(uvicorn.Config):
    """The configuration of uvicorn, with the limits and with what all connections of a server share."""

    def __init__(self, app: ASGIApp, *, limits: PublicSecurityConfig, strangers: StrangerShare, **options: Any) -> None:
        super().__init__(app, http=SmallReads, **options)  # type: ignore[arg-type]
        self.limits = limits
        self.strangers = strangers
        self.open_connections = Connections(limits)
        self.read_buffer = memoryview(bytearray(_BODY_READ_BYTES))


class SmallReads(asyncio.BufferedProtocol):
    """Gives a connection what it receives in small pieces. One of its own: what is an asyncio.Protocol as well, as
    uvicorn's are, is given all that there is by uvloop. And notes what each takes."""

    def __init__(self, config: LimitedConfig, **options: Any) -> None:
        self._buffer = config.read_buffer
        self._protocol = LimitedProtocol(config=config, **options)
        self.connection_made = self._protocol.connection_made  # type: ignore[assignment, method-assign]
        self.connection_lost = self._protocol.connection_lost  # type: ignore[method-assign]
        self.eof_received = self._protocol.eof_received  # type: ignore[method-assign]
        self.pause_writing = self._protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = self._protocol.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        self._begun_s = time.thread_time()
        self._num_bytes = self._protocol.num_read_bytes
        return self._buffer[: self._num_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._buffer[:nbytes]))
        # libuv reads a connection 32 times on end while each fills the buffer. Paused in `get_buffer`, it would crash.
        has_more = nbytes == self._num_bytes
        self._protocol.flow.spend(time.thread_time() - self._begun_s, has_more=has_more)


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Who sends a request too slowly, or too much beside its body, is refused or cut off.

    What is refused is refused in its turn: earlier requests get their answers, and nothing later is read.
    """

    config: LimitedConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._bounds = MessageBounds(self.config.limits.max_header_bytes)
        self._pieces: list[bytes] = []
        """Pieces of the body in what is being parsed."""
        self._num_body_bytes_left = 0
        """What is to come of a body whose length is known."""
        self._num_chunk_bytes = _READ_BYTES
        """Bytes of the next read, where the length of what is to come is not known."""
        self._is_in_head = False
        self._may_stay = False
        self._is_refused = False
        self._answering: RequestResponseCycle | None = None
        self._reading: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self.flow: Flow = Flow(transport, self.config.strangers, network_of(host))
        self._lingering = Lingering(transport, self.flow)
        if self.config.open_connections.admit(self, host):
            self._take_turns()
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._lingering.end()
        self.flow.close()
        self.config.open_connections.remove(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """End at once."""
        self.transport.abort()

    def shutdown(self) -> None:
        self._may_stay = False
        super().shutdown()

    @property
    def num_read_bytes(self) -> int:
        """The most to read at once."""
        if self._is_refused or self._lingering.is_begun:
            return _DISCARD_BYTES
        return max(self._num_chunk_bytes, min(self._num_body_bytes_left, _BODY_READ_BYTES))

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self._lingering.is_begun:
            self._lingering.discard(len(data))
            return
        self._unset_keepalive_if_required()
        self._bounds.read(len(data))
        try:
            self._parse(data)
            num_body_bytes = sum(map(len, self._pieces))
            is_mostly_body = num_body_bytes >= _MIN_BODY_SHARE * len(data)
            self._num_chunk_bytes = min(2 * len(data), _BODY_READ_BYTES) if is_mostly_body else _READ_BYTES
            self._take_pieces()
            self._bounds.check()
        except BadMessageError as error:
            self._refuse(str(error))
        except httptools.HttpParserError as error:
            self._refuse(f"the request is not HTTP/1.1: {error}")
        self._take_turns()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserCallbackError as error:
                cause = error.__context__
                raise (cause if isinstance(cause, BadMessageError | httptools.HttpParserError) else error) from None
            except httptools.HttpParserUpgrade as offer:
                # httptools leaves the body to another protocol. This server has no other.
                head = without_offer(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
                data = head + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise BadMessageError("too many requests were sent without waiting for an answer")
        self._bounds.begin()
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bounds.field(len(name) + len(value))
        if self._is_in_head:  # else it is a trailer: nothing that a gateway has looked through
            super().on_header(name, value.strip(b" \t"))  # the parser leaves what stands behind (RFC 9110, 5.5)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._bounds.field(len(self.url))
        target = origin_form(method, self.url, self.headers)
        if self.parser.should_upgrade():
            return
        self.url = target
        check_head(self.headers, version)
        fields = dict(self.headers)
        length = b"" if b"transfer-encoding" in fields else fields.get(b"content-length", b"")
        self._num_body_bytes_left = int(length) if length.isdigit() else 0
        self.expect_100_continue &= version != "1.0"
        super().on_headers_complete()
        # An answer that overtakes its request is the connection's last: what follows is not to be parsed for it.
        self._may_stay = self.cycle.keep_alive
        self.cycle.keep_alive = False
        self.cycle.transport = cast(asyncio.Transport, self._lingering)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def _take_pieces(self) -> None:
        """All that was read of a body at once: what is done for each of its chunks adds up."""
        if self._pieces:
            body = b"".join(self._pieces)
            self._pieces.clear()
            self._num_body_bytes_left = max(0, self._num_body_bytes_left - len(body))
            self._bounds.body(len(body))
            super().on_body(body)
            if self.pipeline:
                self.flow.pause_reading()

    def on_message_complete(self) -> None:
        self._take_pieces()
        self._num_body_bytes_left = 0
        if self.parser.should_upgrade():
            return
        self.cycle.transport = self.transport
        self.cycle.keep_alive = self._may_stay and not self.cycle.response_started
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self._lingering.is_begun:
            super().on_response_complete()
        self._take_turns()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        app = judged(app, cycle, self.flow)
        super()._start_asgi_task(cycle, close_delimited(app, cycle) if cycle.scope["http_version"] == "1.0" else app)

    def _refuse(self, message: str) -> None:
        """The request that is being read is none, and the last one."""
        self._is_refused = True
        self.flow.refuse()
        last = self._answering
        if last is not None and not last.response_complete and not last.more_body:
            if self.pipeline and self.pipeline[0][0].more_body:
                self.pipeline.popleft()
            last = self.pipeline[0][0] if self.pipeline else last
            last.keep_alive = False
            last.transport = cast(asyncio.Transport, self._lingering)
            return
        if last is not None and not last.response_complete:
            # To the application it is as if the client had left.
            last.disconnected = True
            last.message_event.set()
        if last is None or last.response_complete or not last.response_started:
            read = self.headers if self._is_in_head else ()
            received = {name.decode("latin-1"): value.decode("latin-1") for name, value in read}
            answer = error_response(
                400, error_body(400, message), {**RequestIdentity.of(received).headers, "connection": "close"}
            )
            lines = [b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *answer.raw_headers)]
            self.transport.write(b"".join((STATUS_LINE[400], *lines, b"\r\n", answer.body)))
        self._lingering.close()

    def _take_turns(self) -> None:
        """A client has to say all of a request in time, unless it waits for the answer to one."""
        cycle = self._answering
        is_answering = cycle is not None and not cycle.response_complete and not cycle.more_body
        if is_answering and not self._lingering.is_begun:
            self.config.open_connections.answer(self)
            self._unwatch()
            return
        self.config.open_connections.wait(self)
        is_idle = self.timeout_keep_alive_task is not None
        if is_idle:
            self._unwatch()
        elif self._reading is None and not self.transport.is_closing():
            self._reading = self.loop.call_later(self.config.limits.request_read_timeout_s, self._give_up)

    def _unwatch(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _give_up(self) -> None:
        self._reading = None
        if not self.transport.is_closing():
            self.abort()
