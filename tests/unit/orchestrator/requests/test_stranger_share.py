"""The loop's time for those of whom nothing was accepted."""

import asyncio

from orchestrator.requests.stranger_share import StrangerShare
from tests.support.until import until

SAVED_S = 0.25
TURN_S = 1e-4


class Clock:
    """Goes on when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_after_a_quiet_while_nobody_waits_until_much_was_spent() -> None:
    share = StrangerShare(0.5, Clock())
    share.spend(SAVED_S / 2)
    assert not share.wait("a", lambda: None)
    share.spend(SAVED_S)
    assert share.wait("a", lambda: None)


async def test_who_waits_goes_on_when_the_share_has_grown_by_what_was_spent() -> None:
    clock, resumed = Clock(), asyncio.Event()
    share = StrangerShare(0.5, clock)
    share.spend(SAVED_S + 0.002)
    assert share.wait("a", resumed.set)
    clock.now_s += 0.003  # half of that is the strangers'
    for _ in range(3):
        await asyncio.sleep(0.005)  # its timer is due
    assert not resumed.is_set()
    clock.now_s += 0.002
    await resumed.wait()
    assert not share.num_waiting


async def test_turns_are_fair_to_addresses() -> None:
    clock, order = Clock(), list[str]()
    share = StrangerShare(1.0, clock)
    share.spend(SAVED_S + TURN_S)
    for _ in range(10):
        assert share.wait("many", lambda: order.append("many"))
    assert share.wait("one", lambda: order.append("one"))
    clock.now_s += 20 * TURN_S
    await until(lambda: len(order) == 11)
    assert order.index("one") <= 1


async def test_what_has_proven_to_be_work_is_given_back() -> None:
    share = StrangerShare(0.5, Clock())
    share.spend(2 * SAVED_S)
    share.spend(-2 * SAVED_S)
    assert not share.wait("a", lambda: None)


async def test_who_waits_for_a_debt_goes_on_when_it_is_given_back() -> None:
    share, resumed = StrangerShare(0.001, Clock()), asyncio.Event()
    share.spend(2 * SAVED_S)
    assert share.wait("a", resumed.set)
    share.spend(-2 * SAVED_S)
    async with asyncio.timeout(5):  # the debt's timer has 250 s to go
        await resumed.wait()


async def test_who_left_is_not_called_and_takes_no_turn() -> None:
    clock, called = Clock(), list[str]()
    share = StrangerShare(1.0, clock)
    share.spend(SAVED_S + TURN_S)

    def left() -> None:
        called.append("left")

    share.wait("a", left)
    share.wait("b", lambda: called.append("stayed"))
    waiting = asyncio.create_task(share.turn("c"))
    await asyncio.sleep(0)
    waiting.cancel()
    share.leave("a", left)
    share.leave("a", left)
    await asyncio.wait((waiting,))
    assert share.num_waiting == 1
    clock.now_s += 1
    await until(lambda: called == ["stayed"])
