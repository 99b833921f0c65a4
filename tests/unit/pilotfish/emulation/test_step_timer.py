"""The timer of emulated steps."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from pilotfish.emulation.step_timer import StepTimer


@pytest.fixture
async def timer() -> Iterator[StepTimer]:
    timer = StepTimer()
    yield timer
    timer.close()


@pytest.mark.parametrize("spin", [False, True])
async def test_it_never_returns_early(timer: StepTimer, spin: bool) -> None:
    for delay_ns in (200_000, 50_000, 1_000_000):
        deadline_ns = time.monotonic_ns() + delay_ns
        await timer.sleep_until(deadline_ns, spin=spin)
        assert time.monotonic_ns() >= deadline_ns


async def test_a_wait_can_be_ended(timer: StepTimer) -> None:
    timer.wake()  # nobody's
    waiting = asyncio.create_task(timer.sleep_until(time.monotonic_ns() + 10**15))
    await asyncio.sleep(0)
    timer.wake()
    await asyncio.wait_for(waiting, timeout=10)
    deadline_ns = time.monotonic_ns() + 100_000
    await timer.sleep_until(deadline_ns)
    assert time.monotonic_ns() >= deadline_ns, "the next one is as long as it should be"
