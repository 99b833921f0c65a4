import asyncio

import pytest

from orchestrator.answers.loop_turns import LoopTurns


@pytest.fixture
async def turns() -> LoopTurns:
    return LoopTurns(turns_per_pass=2)


async def start(turns: LoopTurns, names: str, order: list[str]) -> list[asyncio.Task[None]]:
    async def writer(name: str) -> None:
        await turns.take()
        order.append(name)

    tasks = [asyncio.create_task(writer(name)) for name in names]
    await asyncio.sleep(0)  # they have asked
    return tasks


async def test_a_free_turn_is_had_at_once(turns: LoopTurns) -> None:
    assert [turns.take_free() for _ in range(3)] == [True, True, False]
    await asyncio.sleep(0)
    assert turns.take_free()


async def test_turns_are_granted_in_order_so_many_in_each_pass(turns: LoopTurns) -> None:
    assert turns.take_free()
    assert turns.take_free()
    order: list[str] = []
    tasks = await start(turns, "abcde", order)
    served = []
    while len(order) < 5:
        before = len(order)
        await asyncio.sleep(0)
        served.append(len(order) - before)
    assert order == list("abcde")
    assert max(served) == 2
    await asyncio.gather(*tasks)


async def test_who_gives_up_takes_no_turn(turns: LoopTurns) -> None:
    order: list[str] = []
    first, second, third = await start(turns, "abc", order)
    first.cancel()
    second.cancel()
    await third
    assert order == ["c"]
    await asyncio.gather(first, second, return_exceptions=True)


async def test_nobody_passes_those_who_wait(turns: LoopTurns) -> None:
    order: list[str] = []
    tasks = await start(turns, "a", order)
    assert not turns.take_free()
    await asyncio.gather(*tasks)
    assert order == ["a"]


async def test_a_turn_comes_at_once_or_in_a_later_pass(turns: LoopTurns) -> None:
    tasks = [asyncio.create_task(turns.turn()) for _ in range(3)]
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True, True, False]
    await tasks[2]
