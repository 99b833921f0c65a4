"""Whose bytes are read when."""

import asyncio
from typing import Any, cast

from orchestrator.http.flow import Flow
from orchestrator.requests.stranger_share import StrangerShare
from tests.support.until import until

MUCH_S = 1.0


class Transport:
    """Of a connection."""

    is_read = True

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def connected(share: StrangerShare) -> tuple[Transport, Flow]:
    transport = Transport()
    flow = Flow(cast(Any, transport), share, "here")
    await asyncio.sleep(0)
    return transport, flow


async def test_strangers_wait_where_their_share_is_used_up_and_accepted_ones_do_not() -> None:
    share = StrangerShare(0.1, Clock())
    (known, known_flow), (stranger, stranger_flow) = await connected(share), await connected(share)
    known_flow.accept()
    stranger_flow.spend(MUCH_S)
    known_flow.spend(0.001)
    assert (known.is_read, stranger.is_read) == (True, False)
    assert not (await connected(share))[0].is_read, "not even the first request"


async def test_an_acceptance_is_good_for_some_reading_and_for_no_more() -> None:
    share = StrangerShare(0.1, Clock())
    transport, flow = await connected(share)
    (await connected(share))[1].spend(MUCH_S)
    flow.accept()
    for _ in range(20):
        flow.spend(0.0004)  # some 200 kB
        assert transport.is_read
        flow.accept()
    flow.spend(0.01)
    assert not transport.is_read


async def test_who_is_refused_is_a_stranger_again() -> None:
    share = StrangerShare(0.1, Clock())
    transport, flow = await connected(share)
    (await connected(share))[1].spend(MUCH_S)
    flow.accept()
    flow.refuse()
    assert not transport.is_read


async def test_what_accepted_requests_cost_is_not_counted() -> None:
    share = StrangerShare(0.1, Clock())
    _, flow = await connected(share)
    for _ in range(100):
        flow.spend(0.1)
        flow.accept()
    assert (await connected(share))[0].is_read


async def test_a_turn_does_not_overrule_the_application_nor_the_other_way() -> None:
    clock = Clock()
    share = StrangerShare(0.9, clock)
    transport, flow = await connected(share)
    flow.pause_reading()
    flow.spend(0.26)
    flow.resume_reading()
    assert not transport.is_read, "it waits for its turn"
    flow.pause_reading()
    clock.now_s += 1
    await until(lambda: not share.num_waiting)
    assert not transport.is_read, "the application has enough"
    flow.resume_reading()
    assert transport.is_read


async def test_connections_that_send_nothing_keep_nobody_waiting() -> None:
    share = StrangerShare(0.1, Clock())
    for _ in range(10_000):
        (await connected(share))[1].close()
    assert (await connected(share))[0].is_read


async def test_a_connection_counts_once_it_sends_something() -> None:
    share = StrangerShare(0.1, Clock())
    for _ in range(10_000):
        (await connected(share))[1].spend(0.0)
    assert not (await connected(share))[0].is_read


async def test_a_closed_connection_waits_for_nothing() -> None:
    clock = Clock()
    share = StrangerShare(0.9, clock)
    transport, flow = await connected(share)
    flow.spend(0.26)
    flow.close()
    flow.spend(1.0)
    assert not share.num_waiting
    clock.now_s += 1
    await asyncio.sleep(0)
    assert not transport.is_read
