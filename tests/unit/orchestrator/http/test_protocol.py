"""Connections that send too much of a head, too slowly, or are too many."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from orchestrator.http.server import HttpServer
from pilotfish.config import PublicSecurityConfig

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
Connect = Callable[..., AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def app(scope, receive, send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(f"{len(body)} bytes")(scope, receive, send)


@asynccontextmanager
async def serving(*, timeout_s: float = 60.0, max_connections: int = 100) -> AsyncIterator[Connect]:
    limits = PublicSecurityConfig(
        max_header_bytes=4096, request_read_timeout_s=timeout_s, max_connections=max_connections
    )
    server = await HttpServer.start(app, "127.0.0.1", 0, keep_alive_timeout_s=60, limits=limits)
    host, _, port = server.address.rpartition(":")

    @asynccontextmanager
    async def connect() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.close()

    try:
        yield connect
    finally:
        await server.stop(0)


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_large_header_is_refused(at_once: bool) -> None:
    async with serving() as connect, connect() as (reader, writer):
        lines = [b"x-%d: %s\r\n" % (number, b"x" * 90) for number in range(60)]
        if at_once:
            writer.write(GET + b"".join(lines) + b"\r\n")
        else:
            # Never complete: it is the bytes that are counted.
            writer.write(GET + b"".join(lines))
        answer = await until_closed(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")


async def test_ordinary_requests_are_answered_one_after_the_other_and_bodies_do_not_count() -> None:
    async with serving() as connect, connect() as (reader, writer):
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n" + b"x" * 9000)
            assert b"200 OK" in await reader.readuntil(b"\r\n")
            await reader.readuntil(b"9000 bytes")


@pytest.mark.parametrize(
    "begin",
    [b"", b"\r\n", b"GET / HT", GET, b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n123"],
)
async def test_an_unfinished_request_is_given_up(begin: bytes) -> None:
    async with serving(timeout_s=0.05) as connect, connect() as (reader, writer):
        writer.write(begin)
        assert await until_closed(reader) == b""


async def test_too_many_connections_are_closed_and_the_others_stay() -> None:
    async with serving(max_connections=1) as connect, connect() as (reader, writer):
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"0 bytes")
        async with connect() as (other, _):
            assert await until_closed(other) == b""
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"0 bytes")
