"""The start of rank 0 beside ranks that others run."""

import asyncio

import pytest

from pilotfish.errors import ConfigError, UnavailableError
from target_service.hosts import start_beside_ranks


class Starting:
    """A start of rank 0 that the test ends, or that is cancelled."""

    def __init__(self) -> None:
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.was_cancelled = False

    async def run(self) -> str:
        try:
            return await self.result
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def rank_ends(count: int) -> list[asyncio.Future[int]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


async def test_the_start_goes_on_while_all_ranks_run() -> None:
    starting, ends = Starting(), rank_ends(2)
    starting.result.set_result("ready")
    assert await start_beside_ranks(starting.run(), ends) == "ready"
    assert all(end.cancelled() for end in ends), "nobody waits for them any more"


async def test_a_rank_that_ends_stops_the_start_and_is_named() -> None:
    starting, ends = Starting(), rank_ends(2)
    ends[1].set_result(-9)
    with pytest.raises(UnavailableError, match="rank 2 of 3 ended with status -9 before it was ready"):
        await start_beside_ranks(starting.run(), ends, grace_s=0)
    assert starting.was_cancelled
    assert ends[0].cancelled()


async def test_a_rank_that_nobody_can_run_is_named_by_the_first_line_of_why() -> None:
    starting, ends = Starting(), rank_ends(1)
    ends[0].set_exception(RuntimeError("The actor died.\nclass_name: RankHost"))
    with pytest.raises(UnavailableError, match=r"rank 1 of 2 could not be run \(RuntimeError: The actor died.\)"):
        await start_beside_ranks(starting.run(), ends, grace_s=0)
    assert starting.was_cancelled


async def test_why_a_rank_ended_comes_from_rank_0_if_it_knows() -> None:
    starting, ends = Starting(), rank_ends(1)
    ends[0].set_result(1)
    asyncio.get_running_loop().call_soon(starting.result.set_exception, ConfigError("9 heads"))
    with pytest.raises(ConfigError, match="9 heads"):
        await start_beside_ranks(starting.run(), ends)
