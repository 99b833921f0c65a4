"""What stands between an application and the connection that it answers on."""

from __future__ import annotations

from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from orchestrator.http.flow import Flow


def judged(app: Any, cycle: RequestResponseCycle, flow: Flow) -> Any:
    """What the application answers says who is a stranger; those who only look stay what they were. Nothing is written
    to a connection that is closed."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_judged(message: Message) -> None:
            # uvloop writes to no closed transport, and tells of its end only later.
            if flow.write_paused and not cycle.disconnected:
                await flow.drain()
            cycle.disconnected |= cycle.transport.is_closing()
            if message["type"] == "http.response.start":
                if 400 <= message["status"] < 500:
                    flow.refuse()
                elif scope["method"] == "POST" and message["status"] < 400:
                    flow.accept()
                else:
                    flow.pass_over()
            await send(message)

        await app(scope, receive, send_judged)

    return run


def close_delimited(app: Any, cycle: RequestResponseCycle) -> Any:
    """HTTP/1.0 knows no chunks: an answer of unknown length ends with its connection (RFC 9112, 6.1)."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_plainly(message: Message) -> None:
            cycle.chunked_encoding = False
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plainly)

    return run
