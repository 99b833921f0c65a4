"""HTTP connections with limits that uvicorn does not have: headers, patience, and how many there are."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from orchestrator.http.errors import error_body, error_response
from orchestrator.requests.identity import RequestIdentity
from pilotfish.config import PublicSecurityConfig


class LimitedConfig(uvicorn.Config):
    """uvicorn's, with the limits."""

    def __init__(self, app: ASGIApp, *, limits: PublicSecurityConfig, **options: Any) -> None:
        super().__init__(app, http=LimitedProtocol, **options)
        self.limits = limits


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Who sends a request too slowly, or too much of its head, is cut off."""

    config: LimitedConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._num_header_bytes = 0
        self._is_in_message = False
        self._is_in_headers = False
        self._reading: asyncio.TimerHandle | None = None
        is_full = len(self.connections) >= self.config.limits.max_connections
        super().connection_made(transport)
        if is_full:
            self.connections.discard(self)
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_headers:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > self.config.limits.max_header_bytes and not self.transport.is_closing():
                self.send_400_response("The header is too large.")
        if self._expects_data:
            self._watch()
        else:
            self._unwatch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, as any other is refused."""
        read = self.headers if self._is_in_message else ()
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in read}
        headers = {**RequestIdentity.of(told).headers, "connection": "close"}
        answer = error_response(400, error_body(400, msg), headers)
        lines = [b"%b: %b\r\n" % header for header in answer.raw_headers]
        self.transport.write(b"".join((STATUS_LINE[400], *lines, b"\r\n", answer.body)))
        self.transport.close()

    def on_message_begin(self) -> None:
        self._num_header_bytes = 0
        self._is_in_message = self._is_in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        num_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if num_bytes > self.config.limits.max_header_bytes:
            raise ValueError("the header is too large")  # told as status 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_message = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_message and self.parser is not None:
            self._watch()

    @property
    def _expects_data(self) -> bool:
        """Whether the client has to go on: it has not said all of a request, and waits for no answer to another."""
        is_answering = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        return not is_answering

    def _watch(self) -> None:
        if self._reading is None:
            self._reading = self.loop.call_later(self.config.limits.request_read_timeout_s, self._give_up)

    def _unwatch(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _give_up(self) -> None:
        self._reading = None
        if not self.transport.is_closing():
            self.transport.abort()
