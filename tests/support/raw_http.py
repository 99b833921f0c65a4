"""An HTTP server of our own that is sent bytes, not requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrator.http.server import HttpServer
from orchestrator.requests.stranger_share import StrangerShare
from pilotfish.config import PublicSecurityConfig


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells what was asked: method, target, host, the body's length, and the names of all headers."""
    request = Request(scope, receive)
    try:
        body = await request.body()
    except ClientDisconnect:
        return
    query = scope["query_string"].decode()
    target, host = scope["path"] + (f"?{query}" if query else ""), request.headers.get("host", "-")
    text = f"<{request.method} {target} of {host}: {len(body)} bytes; {' '.join(sorted(request.headers))}>"
    await PlainTextResponse(text)(scope, receive, send)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without reading the body."""
    await PlainTextResponse("no", 401)(scope, receive, send)


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """An answer whose length is not told."""

    async def pieces() -> AsyncIterator[str]:
        for piece in ("one ", "two"):
            yield piece

    await StreamingResponse(pieces())(scope, receive, send)


class Connection:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *segments: bytes) -> None:
        """Each in a segment of its own, as far as the server lets one."""
        for segment in segments:
            try:
                self._writer.write(segment)
                await self._writer.drain()
            except ConnectionError:
                return
            for _ in range(5):  # the server, on the same loop, reads it
                await asyncio.sleep(0)

    async def until(self, text: str) -> str:
        """What comes, until this does."""
        return (await self._reader.readuntil(text.encode())).decode()

    async def until_closed(self) -> str:
        """What comes until the server ends the connection."""
        pieces = []
        try:
            while piece := await self._reader.read(65536):
                pieces.append(piece)
        except ConnectionError:
            pass
        return b"".join(pieces).decode()

    def close(self) -> None:
        self._writer.close()


class RawServer:
    """A listening server."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        connection = Connection(*await asyncio.open_connection(self._host, self._port))
        try:
            yield connection
        finally:
            connection.close()

    async def ask(self, *segments: bytes) -> str:
        """All that a connection of its own is answered. The last request has to end it."""
        async with self.connect() as connection:
            await connection.send(*segments)
            return await connection.until_closed()


@asynccontextmanager
async def serving(
    app: Any = tell, *, keep_alive_timeout_s: int = 60, strangers: StrangerShare | None = None, **limits: Any
) -> AsyncIterator[RawServer]:
    """limits: keys of security.public."""
    server = await HttpServer.start(
        app,
        "127.0.0.1",
        0,
        keep_alive_timeout_s=keep_alive_timeout_s,
        limits=PublicSecurityConfig(**limits),
        strangers=strangers,
    )
    host, _, port = server.address.rpartition(":")
    try:
        yield RawServer(host, int(port))
    finally:
        await server.stop(0)
