"""Work of many clients on few threads."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from orchestrator.requests.fair_threads import FairThreads
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import ResourceExhaustedError, UnavailableError
from tests.support.until import until

DURATIONS_S = {"long": 1.0, "short": 0.01}


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds work until it is set."""
    event = threading.Event()
    yield event
    event.set()


class Clock:
    """Goes on by what work takes."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def taking(self, duration_s: float, then: Callable[[], None]) -> Callable[[], None]:
        """Work that does nothing but take so long."""

        def work() -> None:
            self.now_s += duration_s
            then()

        return work


def one_thread(clock: Callable[[], float] = Clock(), **limits: int) -> FairThreads:
    return FairThreads(OrchestratorConfig(num_threads=1, **limits), clock)


def begun(threads: FairThreads, gate: threading.Event, client: str = "greedy") -> asyncio.Task[bool]:
    return asyncio.create_task(threads.run(client, gate.wait))


async def test_results_and_errors_come_back() -> None:
    threads = one_thread()
    assert await threads.run("a", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run("a", lambda: 1 // 0)
    assert await threads.run("a", lambda: 8) == 8
    threads.close()


class LargeError(Exception):
    """As one whose traceback has a request's body."""


def fail() -> None:
    raise LargeError


async def test_what_failed_leaves_nothing_for_the_collector() -> None:
    threads = one_thread()
    gc.disable()
    try:
        with pytest.raises(LargeError) as raised:
            await threads.run("a", fail)
        left = weakref.ref(raised.value)
        del raised
        threads.close()
        await until(lambda: left() is None)
    finally:
        gc.enable()


async def test_a_client_with_much_work_does_not_hold_up_another(gate: threading.Event) -> None:
    order: list[str] = []
    clock = Clock()
    threads = one_thread(clock)
    first = begun(threads, gate)
    work = {name: clock.taking(1, lambda name=name: order.append(name)) for name in ("greedy", "modest")}
    greedy = [asyncio.create_task(threads.run("greedy", work["greedy"])) for _ in range(5)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(threads.run("modest", work["modest"]))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, modest, *greedy)
    assert order.index("modest") <= 1
    threads.close()


async def test_clients_share_the_time_that_their_work_takes(gate: threading.Event) -> None:
    order: list[str] = []
    clock = Clock()
    threads = one_thread(clock)
    first = begun(threads, gate)
    works = {name: clock.taking(took_s, lambda name=name: order.append(name)) for name, took_s in DURATIONS_S.items()}
    tasks = [asyncio.create_task(threads.run(name, work)) for name, work in works.items() for _ in range(16)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *tasks)
    assert order[:18].count("long") <= 2, "while the other has work, a second is a second, whatever it is for"
    threads.close()


async def test_who_left_before_its_work_began_pays_nothing(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    clock = Clock()
    threads = one_thread(clock)
    loop = asyncio.get_running_loop()
    first = begun(threads, gate, "another")
    left = asyncio.create_task(threads.run("a", lambda: order.append("left")))
    waiting = [asyncio.create_task(threads.run(name, clock.taking(1, lambda: None))) for name in ("another", "another")]
    waiting += [asyncio.create_task(threads.run(name, lambda name=name: order.append(name))) for name in "ab"]
    await asyncio.sleep(0)
    call_soon = loop.call_soon_threadsafe
    with monkeypatch.context() as patch:
        # It is cancelled when it has its turn and does not know yet.
        patch.setattr(loop, "call_soon_threadsafe", lambda work, *args: call_soon(lambda: (work(*args), left.cancel())))
        gate.set()
        await first
    await asyncio.gather(*waiting)
    assert left.cancelled()
    assert order == ["a", "b"], "the first of those that have had nothing"
    threads.close()


async def test_what_waits_is_refused_when_the_threads_close(gate: threading.Event) -> None:
    threads = one_thread()
    first = begun(threads, gate)
    waiting = asyncio.create_task(threads.run("a", lambda: 7))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(UnavailableError):
        await waiting
    with pytest.raises(UnavailableError):
        await threads.run("b", lambda: 7)
    gate.set()
    assert await first


async def test_work_of_a_caller_that_left_is_not_begun(gate: threading.Event) -> None:
    threads, done = one_thread(), []
    first = begun(threads, gate)
    left = asyncio.create_task(threads.run("a", lambda: done.append("left")))
    stays = asyncio.create_task(threads.run("a", lambda: done.append("stays")))
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
    second = asyncio.create_task(threads.run("a", lambda: gate.is_set()))
    await asyncio.sleep(0)
    gate.set()
    assert await second
    threads.close()


async def test_what_waits_is_bounded_and_costs_the_client_with_most_its_newest(gate: threading.Event) -> None:
    threads = one_thread(max_queued_requests=2)
    work = [begun(threads, gate), begun(threads, gate), begun(threads, gate)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError) as failure:
        await threads.run("greedy", gate.wait)
    assert failure.value.retry_after_s
    work.append(begun(threads, gate, "modest"))
    with pytest.raises(ResourceExhaustedError):
        await work.pop(2)
    with pytest.raises(ResourceExhaustedError):
        await asyncio.gather(begun(threads, gate, "modest"), return_exceptions=False)
    gate.set()
    await asyncio.gather(*work)
    threads.close()
