"""One HTTP request and its answer, plain or streamed."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from orchestrator.http.body import encode_body, read_body
from orchestrator.http.caller import caller_of, holder_of
from orchestrator.http.errors import ErrorBody, describe_error
from orchestrator.requests.body_budget import BodyBudget
from orchestrator.requests.caller import Caller
from pilotfish.errors import PilotfishError, UnavailableError

_log = logging.getLogger(__name__)

_EVENT_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would collect the answer.
    (b"x-accel-buffering", b"no"),
)
DONE_EVENT = b"data: [DONE]\n\n"
_LINE_SEPARATORS = {letter.encode(): b"\\u%04x" % ord(letter) for letter in "\x85\u2028\u2029"}
"""Characters that JSON has as they are and that end no line of an event, with their escapes: many clients split events
there nonetheless (httpx' iter_lines, Python's splitlines), and could not read what is left of the JSON."""


class Exchange:
    """What an endpoint reads its request from and writes its answer to."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.request = Request(scope, receive)
        self.body: bytes | bytearray = b""
        self.extra_headers: dict[str, str] = {}
        """Further headers of the answer; set them before it begins."""
        self.param_names: Mapping[str, str] = {}
        """See `describe_error`."""
        self.failure_event: Callable[[ErrorBody], bytes] = event_of
        """Makes the event that reports a failure within a stream."""
        self._send = send
        self._is_started = self._is_over = False

    @functools.cached_property
    def caller(self) -> Caller:
        """Who asks, from the first look on. Raises InvalidRequestError for a time limit that is none."""
        return caller_of(self.request)

    async def reply(self, body: object, status: int = 200) -> None:
        await self.reply_bytes(encode_body(body), "application/json", status)

    async def reply_bytes(self, data: bytes, content_type: str, status: int = 200) -> None:
        """Answer with one document."""
        self._is_over = True
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(data)).encode())]
        await self._start(status, headers)
        await self._send({"type": "http.response.body", "body": data})

    async def write_event(self, data: bytes) -> None:
        """Stream server-sent events; the first ones begin the answer."""
        if not self._is_started:
            await self._start(200, _EVENT_STREAM_HEADERS)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_events(self) -> None:
        self._is_over = True
        await self._send({"type": "http.response.body", "body": DONE_EVENT})

    async def fail(self, error: Exception) -> None:
        """Report the error, with a status if the answer has not begun, else within the stream, if that goes on."""
        if self._is_over:
            return
        status, body, headers = describe_error(error, self.param_names)
        if self._is_started:
            await self.write_event(self.failure_event(body))
            await self.end_events()
            return
        self.extra_headers.update(headers)
        await self.reply(body, status)

    async def _start(self, status: int, headers: Any) -> None:
        self._is_started = True
        extra = [(name.encode(), value.encode("latin-1", "replace")) for name, value in self.extra_headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *extra]})


def event_of(body: object, name: str = "") -> bytes:
    """A server-sent event of this JSON, and of this name if it has one."""
    data = encode_body(body)
    for separator, escape in _LINE_SEPARATORS.items():
        data = data.replace(separator, escape)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data


Handler = Callable[[Exchange], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Endpoint:
    """An ASGI application: a handler that is cancelled when its client leaves or has no more time; errors are in
    OpenAI's shape."""

    handler: Handler
    max_body_bytes: int
    budget: BodyBudget
    """Memory for bodies, shared by all endpoints."""
    is_closed: Callable[[], bool] = lambda: False
    """Whether requests are refused, as the server stops."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            holding = self.budget.holding(holder_of(exchange.request))
            async with exchange.caller.deadline():
                with holding as hold:
                    exchange.body = await read_body(exchange.request, self.max_body_bytes, hold)
                    if self.is_closed():
                        exchange.extra_headers["connection"] = "close"  # the next one goes to another server
                        raise UnavailableError("the server is shutting down")
                    await _unless_disconnected(receive, self.handler(exchange))
        except ClientDisconnect:
            return
        except PilotfishError as error:
            await exchange.fail(error)
        except Exception as error:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            await exchange.fail(error)


async def _unless_disconnected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; cancel it as soon as the client is gone, and raise ClientDisconnect."""
    task, watch = asyncio.create_task(work), asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        task.result()
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.wait((task, watch))
        if not task.cancelled():
            # It may have failed of the very same cause: somebody has to have looked.
            task.exception()
        del task, watch  # an error's traceback has this frame: with the task in it, bodies stayed until a collection


async def _disconnect(receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
