"""The proxy between a client and an echo server on this event loop."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.conditions import Conditions
from tests.support.fault_proxy import FaultProxy, main, obey

SHORT_S = 0.05
"""Long enough for bytes to cross loopback a hundred times."""


class EchoServer:
    """Says back what it hears."""

    def __init__(self) -> None:
        self.address = ""
        self.writers: list[asyncio.StreamWriter] = []
        self.num_ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        self.num_ended += 1
        writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[EchoServer]:
    echo = EchoServer()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    echo.address = f"{host}:{port}"
    yield echo
    server.close()
    for writer in echo.writers:
        writer.close()


@pytest.fixture
async def proxy(echo: EchoServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(echo.address) as proxy:
        yield proxy


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reader.readexactly(len(data))

    async def hears_nothing(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), SHORT_S)
        except TimeoutError:
            return True
        return False

    async def is_reset(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@contextlib.asynccontextmanager
async def connect(proxy: FaultProxy) -> AsyncIterator[Client]:
    host, port = proxy.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Client]:
    async with connect(proxy) as client:
        assert await client.ask(b"hello") == b"hello"
        yield client


async def until_empty(proxy: FaultProxy) -> None:
    while proxy.num_connections:  # noqa: ASYNC110  # the sockets' ends have no event that a test could see
        await asyncio.sleep(0.001)


async def test_bytes_pass_in_order_and_whole(proxy: FaultProxy, client: Client) -> None:
    sent = bytes(range(256)) * 8192
    proxy.apply(Conditions(delay_ms=1, jitter_ms=2))
    reading = asyncio.create_task(client.reader.readexactly(len(sent)))
    client.writer.write(sent)
    assert await reading == sent


async def test_each_way_is_delayed(proxy: FaultProxy, client: Client) -> None:
    for conditions in ({"direction": "up"}, {"direction": "down"}):
        proxy.apply(Conditions(delay_ms=20), **conditions)
    start = time.perf_counter()
    await client.ask(b"x")
    assert time.perf_counter() - start >= 0.04
    proxy.apply(Conditions(delay_ms=20), "up")
    proxy.apply(direction="down")
    start = time.perf_counter()
    await client.ask(b"x")
    assert time.perf_counter() - start >= 0.02


async def test_a_frozen_link_holds_bytes_until_it_thaws(proxy: FaultProxy, client: Client) -> None:
    proxy.apply(Conditions(frozen=True))
    client.writer.write(b"held")
    assert await client.hears_nothing()
    async with connect(proxy) as other:
        other.writer.write(b"too")
        assert await other.hears_nothing()
        proxy.apply()
        assert await other.reader.readexactly(3) == b"too"
    assert await client.reader.readexactly(4) == b"held"


async def test_frozen_one_way_the_other_way_passes(proxy: FaultProxy, client: Client, echo: EchoServer) -> None:
    proxy.apply(Conditions(frozen=True), "down")
    client.writer.write(b"said")
    echo.writers[0].write(b"never heard")
    assert await client.hears_nothing()
    proxy.apply()
    assert sorted(await client.reader.readexactly(15)) == sorted(b"saidnever heard")


async def test_a_frozen_link_stops_the_sender(proxy: FaultProxy, client: Client) -> None:
    proxy.apply(Conditions(frozen=True))
    client.writer.write(bytes(2**26))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.writer.drain(), 2 * SHORT_S)
    proxy.apply()
    assert len(await client.reader.readexactly(2**26)) == 2**26


async def test_what_a_partition_cut_is_reset_when_it_heals(proxy: FaultProxy, client: Client) -> None:
    async with connect(proxy) as idle:
        await idle.ask(b"x")
        proxy.apply(Conditions(partitioned=True))
        client.writer.write(b"lost")
        async with connect(proxy) as late:
            late.writer.write(b"lost")
            assert await late.hears_nothing()
            assert await client.hears_nothing()
            proxy.apply()
            assert await client.is_reset()
            assert await late.is_reset()
        assert await idle.ask(b"lives") == b"lives"


async def test_reset_ends_both_ends(proxy: FaultProxy, client: Client, echo: EchoServer) -> None:
    proxy.reset()
    assert await client.is_reset()
    while echo.num_ended == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert proxy.num_connections == 0
    async with connect(proxy) as other:
        assert await other.ask(b"again") == b"again"


async def test_half_open_ends_the_far_end_alone(proxy: FaultProxy, client: Client, echo: EchoServer) -> None:
    proxy.half_open()
    while echo.num_ended == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    client.writer.write(b"into the void")
    assert await client.hears_nothing()
    client.writer.close()
    await until_empty(proxy)


async def test_a_connection_is_closed_after_so_many_bytes(proxy: FaultProxy, client: Client) -> None:
    proxy.apply(Conditions(close_after_bytes=9), "down")
    client.writer.write(b"more than nine")
    assert await client.reader.read(100) in (b"more", b"")  # a reset overtakes what was read by nobody
    assert await client.is_reset()


async def test_an_end_is_passed_on(proxy: FaultProxy, client: Client, echo: EchoServer) -> None:
    echo.writers[0].close()
    assert await client.reader.read(1) == b""
    await until_empty(proxy)


async def test_without_a_replica_connections_are_reset(unused_tcp_port: int) -> None:
    async with FaultProxy(f"127.0.0.1:{unused_tcp_port}") as proxy, connect(proxy) as client:
        assert await client.is_reset()
        await until_empty(proxy)


async def test_redirected_connections_lead_elsewhere(echo: EchoServer, unused_tcp_port: int) -> None:
    async with FaultProxy(f"127.0.0.1:{unused_tcp_port}") as proxy:
        proxy.redirect(echo.address)
        async with connect(proxy) as client:
            assert await client.ask(b"there") == b"there"


async def test_closing_resets_and_listens_no_more(echo: EchoServer) -> None:
    async with FaultProxy(echo.address) as proxy, connect(proxy) as client:
        await client.ask(b"x")
        await proxy.close()
        assert await client.is_reset()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*proxy.address.split(":"))


async def test_control_lines_are_obeyed(proxy: FaultProxy, client: Client) -> None:
    obey(proxy, "down frozen=1")
    client.writer.write(b"x")
    assert await client.hears_nothing()
    obey(proxy, "\n")
    assert await client.reader.readexactly(1) == b"x"
    obey(proxy, "reset")
    assert await client.is_reset()


@pytest.mark.parametrize("arguments", [["--to", "nonsense"], ["--to", "127.0.0.1:1", "--delay-ms", "-1"]])
def test_wrong_arguments_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert capsys.readouterr().err.startswith("error: ")
