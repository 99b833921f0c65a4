import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import UnavailableError
from pilotfish.messages import Opened, OpenSequence, Proposal, Propose
from pilotfish.types import SamplingParams
from tests.support.faulty_drafter import GARBAGE_TOKEN_ID, Fault, FaultyDrafter

MakeDrafter = Callable[..., FaultyDrafter]


@pytest.fixture
async def make() -> AsyncIterator[MakeDrafter]:
    made = []

    def make(fault: Fault, **options: object) -> FaultyDrafter:
        drafter = FaultyDrafter(EmulatedEngine("draft"), fault, **options)
        made.append(drafter)
        drafter.send([OpenSequence(1, (1, 2, 3), SamplingParams(temperature=0))])
        return drafter

    yield make
    for drafter in made:
        await drafter.close()


async def proposals(drafter: FaultyDrafter, count: int) -> list[Proposal]:
    found: list[Proposal] = []
    while len(found) < count:
        found += [event for event in await drafter.receive() if isinstance(event, Proposal)]
    return found


async def test_garbage(make: MakeDrafter) -> None:
    drafter = make("garbage", after_rounds=1)
    drafter.send([Propose(1, 3, (), 2)])
    (sound,) = await proposals(drafter, 1)
    assert max(sound.draft_token_ids) < 256
    drafter.send([Propose(1, 3, (), 2)])
    assert (await proposals(drafter, 1))[0].draft_token_ids == (GARBAGE_TOKEN_ID,) * 2


async def test_stale(make: MakeDrafter) -> None:
    drafter = make("stale")
    drafter.send([Propose(1, 3, (), 2)])
    assert (await proposals(drafter, 1))[0].base_length == 2


async def test_silent(make: MakeDrafter) -> None:
    drafter = make("silent")
    assert await drafter.receive() == [Opened(1, 0)]
    drafter.send([Propose(1, 3, (), 2)])
    drafter.send([OpenSequence(2, (1, 2), SamplingParams())])
    assert await drafter.receive() == [Opened(2, 0)]


async def test_slow(make: MakeDrafter) -> None:
    is_waiting, gate = asyncio.Event(), asyncio.Event()
    waited = []

    async def sleep(duration_s: float) -> None:
        waited.append(duration_s)
        is_waiting.set()
        await gate.wait()

    drafter = make("slow", delay_s=2.0, sleep=sleep)
    drafter.send([Propose(1, 3, (), 2)])
    answer = asyncio.create_task(proposals(drafter, 1))
    await is_waiting.wait()
    assert not answer.done()
    gate.set()
    assert len(await answer) == 1
    assert set(waited) == {2.0}


async def test_dies(make: MakeDrafter) -> None:
    drafter = make("dies", after_rounds=1)
    drafter.send([Propose(1, 3, (), 2)])
    await proposals(drafter, 1)
    drafter.send([Propose(1, 3, (), 2)])
    with pytest.raises(UnavailableError, match="in the middle of a round"):
        await drafter.receive()
    with pytest.raises(UnavailableError, match="in the middle of a round"):
        drafter.send([])
