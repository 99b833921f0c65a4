import asyncio
import gc
import json
import weakref
from typing import Any

import pytest

from orchestrator.http.exchange import Endpoint, Exchange
from orchestrator.http.identity_middleware import IdentityMiddleware
from orchestrator.requests.body_budget import BodyBudget
from pilotfish.errors import InvalidRequestError
from tests.support.until import until


class Connection:
    """A client as ASGI shows it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self._body = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive(self) -> dict[str, Any]:
        if self._body:
            return self._body.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    async def ask(self, handler, *headers: tuple[bytes, bytes]) -> None:
        scope = {"type": "http", "method": "POST", "path": "/x", "headers": headers}
        await IdentityMiddleware(Endpoint(handler, 100, BodyBudget(0)))(scope, self.receive, self.send)


async def test_an_error_within_a_stream_is_an_event() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.write_event(b"data: 1\n\n")
        raise InvalidRequestError("no")

    connection = Connection()
    await connection.ask(handler)
    assert connection.sent[0]["status"] == 200
    first, error, done, rest = connection.text.split("\n\n")
    assert (first, done, rest) == ("data: 1", "data: [DONE]", "")
    assert json.loads(error.removeprefix("data: "))["error"]["message"] == "no"
    assert "more_body" not in connection.sent[-1]


async def test_a_refused_request_leaves_nothing_for_the_collector() -> None:
    left: list[weakref.ref[Exchange]] = []

    async def handler(exchange: Exchange) -> None:
        left.append(weakref.ref(exchange))
        raise InvalidRequestError("no")

    gc.disable()
    try:
        await Connection().ask(handler)
        await until(lambda: left[0]() is None)
    finally:
        gc.enable()


async def test_a_fault_of_our_own_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(exchange: Exchange) -> None:
        raise KeyError("/a/path")

    connection = Connection()
    await connection.ask(handler)
    assert connection.sent[0]["status"] == 500
    assert "/a/path" not in connection.text
    assert "/a/path" in caplog.text


async def test_the_work_is_cancelled_when_the_client_leaves() -> None:
    was_cancelled = False

    async def handler(exchange: Exchange) -> None:
        nonlocal was_cancelled
        connection.left.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    connection = Connection()
    await connection.ask(handler)
    assert was_cancelled
    assert connection.sent == []


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_deadline_that_passes_after_the_last_byte_changes_nothing(is_stream: bool) -> None:
    async def handler(exchange: Exchange) -> None:
        if is_stream:
            await exchange.write_event(b"data: 1\n\n")
            await exchange.end_events()
        else:
            await exchange.reply({"sea": 1})
        await asyncio.Event().wait()

    connection = Connection()
    await connection.ask(handler, (b"x-request-timeout-ms", b"300"))
    assert connection.text == ("data: 1\n\ndata: [DONE]\n\n" if is_stream else '{"sea":1}')


async def test_nothing_is_left_when_the_server_cancels() -> None:
    async def handler(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(Connection().ask(handler))
    while len(asyncio.all_tasks()) < 4:  # noqa: ASYNC110  # this one, the endpoint, its work and its watch
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert asyncio.all_tasks() == {asyncio.current_task()}
