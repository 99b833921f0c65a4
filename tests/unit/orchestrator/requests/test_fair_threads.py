"""Work of many clients on few threads."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from orchestrator.requests.fair_threads import FairThreads
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import ResourceExhaustedError


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds work until it is set."""
    event = threading.Event()
    yield event
    event.set()


def one_thread(**limits: int) -> FairThreads:
    return FairThreads(OrchestratorConfig(num_threads=1, **limits))


def begun(threads: FairThreads, gate: threading.Event, client: str = "greedy") -> asyncio.Task[bool]:
    return asyncio.create_task(threads.run(client, 1, gate.wait))


async def test_results_and_errors_come_back() -> None:
    threads = one_thread()
    assert await threads.run("a", 1, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run("a", 1, lambda: 1 // 0)
    assert await threads.run("a", 1, lambda: 8) == 8
    threads.close()


async def test_a_client_with_much_work_does_not_hold_up_another(gate: threading.Event) -> None:
    threads, order = one_thread(), []
    first = begun(threads, gate)
    greedy = [asyncio.create_task(threads.run("greedy", 100, lambda: order.append("greedy"))) for _ in range(5)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(threads.run("modest", 1, lambda: order.append("modest")))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, modest, *greedy)
    assert order.index("modest") <= 1
    threads.close()


async def test_work_of_a_caller_that_left_is_not_begun(gate: threading.Event) -> None:
    threads, done = one_thread(), []
    first = begun(threads, gate)
    left = asyncio.create_task(threads.run("a", 1, lambda: done.append("left")))
    stays = asyncio.create_task(threads.run("a", 1, lambda: done.append("stays")))
    await asyncio.sleep(0)
    left.cancel()
    gate.set()
    await asyncio.gather(first, stays)
    assert done == ["stays"]
    assert left.cancelled()
    threads.close()


async def test_a_thread_stays_taken_until_its_work_ends(gate: threading.Event) -> None:
    threads = one_thread()
    first = begun(threads, gate)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(threads.run("a", 1, lambda: gate.is_set()))
    await asyncio.sleep(0)
    gate.set()
    assert await second
    threads.close()


async def test_what_waits_is_bounded_for_each_client_and_for_all(gate: threading.Event) -> None:
    threads = one_thread(max_queued_requests=3, max_queued_requests_per_client=2)
    work = [begun(threads, gate), begun(threads, gate), begun(threads, gate)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError) as failure:
        await threads.run("greedy", 1, gate.wait)
    assert failure.value.retry_after_s
    work.append(begun(threads, gate, "modest"))
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError):
        await threads.run("another", 1, gate.wait)
    gate.set()
    await asyncio.gather(*work)
    threads.close()
