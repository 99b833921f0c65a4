import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from orchestrator.http.server import HttpServer
from pilotfish.config import PublicSecurityConfig
from pilotfish.errors import UnavailableError
from tests.support.ipv6 import has_ipv6


class Application:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.was_left = False

    async def __call__(self, scope, receive, send) -> None:
        self.asked.set()
        await receive()
        leaving = asyncio.create_task(receive())
        answering = asyncio.create_task(self.may_answer.wait())
        await asyncio.wait((leaving, answering), return_when=asyncio.FIRST_COMPLETED)
        self.was_left = leaving.done()
        leaving.cancel()
        answering.cancel()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def start(application: Application) -> HttpServer:
    return await HttpServer.start(application, "127.0.0.1", 0, keep_alive_timeout_s=5, limits=PublicSecurityConfig())


@contextlib.asynccontextmanager
async def asking(server: HttpServer) -> AsyncIterator[asyncio.StreamReader]:
    host, port = server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_without_grace_it_is_as_if_clients_had_left() -> None:
    application = Application()
    server = await start(application)
    async with asking(server) as reader:
        await application.asked.wait()
        await server.stop(0)
        assert application.was_left
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_stopping_is_idempotent_and_can_get_impatient() -> None:
    application = Application()
    server = await start(application)
    async with asking(server):
        await application.asked.wait()
        patient = asyncio.create_task(server.stop(60))
        await asyncio.sleep(0)
        await server.stop(0)
        await patient
        await server.stop(0)
    assert application.was_left


async def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UnavailableError, match=rf"127\.0\.0\.1:{port}: the port is in use.*orchestrator\.http\.port"
        ):
            await HttpServer.start(
                Application(), "127.0.0.1", port, keep_alive_timeout_s=5, limits=PublicSecurityConfig()
            )


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
async def test_ipv6(host: str) -> None:
    application = Application()
    application.may_answer.set()
    server = await HttpServer.start(application, host, 0, keep_alive_timeout_s=5, limits=PublicSecurityConfig())
    assert server.url.startswith(f"http://[{host}]:")
    port = int(server.address.rpartition(":")[2])
    for own in ("::1", *(["127.0.0.1"] if host == "::" else [])):
        reader, writer = await asyncio.open_connection(own, port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 204 No Content\r\n"
        writer.close()
    await server.stop(0)
