"""Clients that were served before, beside as many others as there may be."""

import asyncio
import contextlib

import pytest
import uvloop

from orchestrator.http.protocol import LimitedProtocol
from orchestrator.requests.stranger_share import StrangerShare
from tests.support.raw_http import RawServer, refuse, serving, tell

NUM_CLIENTS = 64
NUM_PROMPTS = 5
PROMPT = b"x" * 200_000
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
SMALL = POST + b"content-length: 1\r\n\r\nx"
WHOLE = POST + b"content-length: %d\r\n\r\n%b" % (len(PROMPT), PROMPT)
CHUNKS = b"4000\r\n%b\r\n" % PROMPT[:0x4000] * 12 + b"d40\r\n%b\r\n" % PROMPT[:0xD40] + b"0\r\n\r\n"
CHUNKED_HEAD = POST + b"transfer-encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + CHUNKS
GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
ALL_S = 10.0
"""Of the loop's time: more than strangers have."""


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("prompt", [WHOLE, CHUNKED], ids=["of known length", "in chunks"])
async def test_long_prompts_of_many_streams_wait_for_no_share(prompt: bytes) -> None:
    share = StrangerShare(0.1, Clock())
    async with serving(strangers=share) as server, contextlib.AsyncExitStack() as exits:
        clients = [await exits.enter_async_context(server.connect()) for _ in range(NUM_CLIENTS)]
        for client in clients:
            await client.send(SMALL)
            assert " 1 bytes" in await client.until(">")
        share.spend(ALL_S)
        for _ in range(NUM_PROMPTS):
            for client in clients:
                await client.send(prompt)
                assert " 200000 bytes" in await client.until(">")


async def test_a_first_burst_of_long_prompts_waits_for_no_share() -> None:
    async with serving(strangers=StrangerShare(0.1, Clock())) as server, contextlib.AsyncExitStack() as exits:
        clients = [await exits.enter_async_context(server.connect()) for _ in range(NUM_CLIENTS)]
        await asyncio.gather(*(client.send(WHOLE) for client in clients))
        for client in clients:
            assert " 200000 bytes" in await client.until(">")


def noted_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of what is read from now on."""
    sizes: list[int] = []
    receive = LimitedProtocol.data_received

    def note(self: LimitedProtocol, data: bytes) -> None:
        sizes.append(len(data))
        receive(self, data)

    monkeypatch.setattr(LimitedProtocol, "data_received", note)
    return sizes


async def is_answered(server: RawServer) -> bool:
    """Whether one who comes now is."""
    async with server.connect() as stranger:
        await stranger.send(SMALL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                return bool(await stranger.until("HTTP/1.1 "))
        return False


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_who_comes_when_all_is_used_up_is_not_read(new_loop, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = noted_sizes(monkeypatch)

    async def flood() -> None:
        share = StrangerShare(0.1, Clock())
        async with serving(strangers=share) as server:
            share.spend(ALL_S)
            async with server.connect() as stranger:
                sending = asyncio.create_task(stranger.send(CHUNKED_HEAD + b"1\r\nx\r\n" * 1_000_000))
                await asyncio.wait((sending,), timeout=0.2)
                assert not sending.done()
                sending.cancel()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(flood())
    assert len(sizes) <= 1, "libuv has begun to"


async def test_strangers_wait_until_their_share_has_grown() -> None:
    clock = Clock()
    share = StrangerShare(0.5, clock)
    async with serving(strangers=share) as server, server.connect() as stranger:
        share.spend(0.26)
        await stranger.send(SMALL)
        assert not await is_answered(server)
        clock.now_s += 1
        assert " 1 bytes" in await stranger.until(">")


@pytest.mark.parametrize(("app", "asked"), [(refuse, SMALL), (tell, GET)], ids=["refused", "no work"])
async def test_who_only_costs_comes_to_wait(app: object, asked: bytes) -> None:
    share = StrangerShare(0.1, Clock())
    async with serving(app, strangers=share) as server:
        async with server.connect() as connection:
            while not share.num_waiting:
                await connection.send(asked)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await connection.until("HTTP/1.1 ")
        assert not await is_answered(server)


async def test_long_chunks_are_read_in_long_pieces_and_short_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = noted_sizes(monkeypatch)
    async with serving() as server, server.connect() as connection:
        await connection.send(CHUNKED)
        assert " 200000 bytes" in await connection.until(">")
        assert max(sizes) > 8192
        sizes.clear()
        await connection.send(CHUNKED_HEAD + b"8\r\n12345678\r\n" * 2000 + b"0\r\n\r\n")
        assert " 16000 bytes" in await connection.until(">")
        assert max(sizes) <= 512
