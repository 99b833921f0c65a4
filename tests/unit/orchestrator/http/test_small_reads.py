"""Many connections that send much hold the loop for as long as one read of each takes."""

import asyncio
from types import SimpleNamespace

import pytest
import uvloop

from orchestrator.http import protocol
from tests.support.until import until


class Receiver(asyncio.Protocol):
    """In place of an HTTP connection."""

    sizes: list[int]
    num_read_bytes: int

    def __init__(self, config: object) -> None:
        self.flow = SimpleNamespace(spend=lambda _, has_more: None)

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_is_read_in_small_pieces_on_any_loop(monkeypatch: pytest.MonkeyPatch, new_loop) -> None:
    Receiver.sizes = []
    Receiver.num_read_bytes = 512
    monkeypatch.setattr(protocol, "LimitedProtocol", Receiver)
    config = SimpleNamespace(read_buffer=memoryview(bytearray(65_536)))

    async def send() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocol.SmallReads(config), "127.0.0.1", 0)  # type: ignore[arg-type]
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x" * 100_000)
        await until(lambda: sum(Receiver.sizes) == 100_000)
        writer.close()
        server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(send())
    assert max(Receiver.sizes) == 512
