"""The driver on a clock of its own: who is sent when, what counts, when it ends."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from pilotfish.bench.load.driver import Driver, Window
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.workload import PlannedRequest
from pilotfish.client.answer import Summary, TokenPrompt
from pilotfish.errors import InternalError, PilotfishError, ResourceExhaustedError


class Time:
    """A clock that jumps to the next sleeper when nobody has anything else to do."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, duration_s: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + duration_s, next(self._order), future))
        await future

    async def run(self) -> None:
        while True:
            # Enough turns of the loop for everyone who was woken to fall asleep again.
            for _ in range(20):
                await asyncio.sleep(0)
            if self._sleepers:
                self.now_s, _, future = heapq.heappop(self._sleepers)
                if not future.done():
                    future.set_result(None)


class Service:
    """Answers two tokens, one after a second and one after another; fails what it is told to."""

    def __init__(self, time: Time, summary: Summary, fails: dict[int, PilotfishError] | None = None) -> None:
        self._time = time
        self._summary = summary
        self._fails = fails or {}
        self.num_running = self.most_running = 0
        self.sent: list[tuple[int, float]] = []

    async def ask(self, request: PlannedRequest, on_tokens: Callable[[Sequence[int]], None]) -> Summary:
        self.sent.append((request.index, self._time.now_s))
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            for token_id in (1, 2):
                await self._time.sleep(1.0)
                if request.index in self._fails:
                    raise self._fails[request.index]
                on_tokens([token_id])
            return self._summary
        finally:
            self.num_running -= 1


def requests(arrivals: Iterator[float | None]) -> Iterator[PlannedRequest]:
    for index, arrival_s in enumerate(arrivals):
        yield PlannedRequest(index, arrival_s, TokenPrompt((1,)), 2, 0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def service(time: Time, make_summary) -> Service:
    return Service(time, make_summary(2))


async def drive(
    time: Time, service: Service, level: Level, arrivals: Iterator[float | None], **options: object
) -> Window:
    values: dict = {"num_warm_up": 0, "num_measured": None, "clock": time.clock, "sleep": time.sleep}
    driver = Driver(service.ask, **values | options)
    clockwork = asyncio.create_task(time.run())
    try:
        return await driver.run(level, requests(arrivals))
    finally:
        clockwork.cancel()


async def test_the_closed_loop_keeps_so_many_in_flight_until_the_last_measured_one_ends(
    time: Time, service: Service
) -> None:
    window = await drive(time, service, Level("concurrency", 3), itertools.repeat(None), num_warm_up=3, num_measured=4)
    assert service.most_running == 3
    assert [record.index for record in window.measured] == [3, 4, 5, 6]
    # Three warm up until 2 s; three are measured from then, and one more from 4 s on, beside others that do not count.
    assert (window.start_s, window.end_s) == (2.0, 6.0)
    assert [record.index for record in window.records] == list(range(9))
    assert service.num_running == 0


async def test_what_the_end_cuts_off_has_neither_summary_nor_error(time: Time, service: Service) -> None:
    window = await drive(time, service, Level("rate", 1), iter([0.0, 1.5, 1.6]), num_measured=1)
    cut = [record for record in window.records if not record.is_measured]
    assert [(record.index, record.summary, record.error_code, record.ended_s) for record in cut] == [
        (1, None, "", 0.0),
        (2, None, "", 0.0),
    ]


async def test_the_open_loop_sends_when_due_whatever_becomes_of_the_others(time: Time, service: Service) -> None:
    window = await drive(time, service, Level("trace", 1), iter([0.0, 0.25, 0.5, 5.0]))
    assert service.sent == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 5.0)]
    assert [record.lag_s for record in window.records] == [0.0] * 4
    assert (window.start_s, window.end_s) == (0.0, 7.0)
    assert all(record.is_ok for record in window.records)


async def test_a_client_that_was_late_counts_from_the_schedule(time: Time, service: Service) -> None:
    async def oversleep(duration_s: float) -> None:
        await time.sleep(duration_s + 0.5)

    window = await drive(time, service, Level("rate", 1), iter([1.0]), num_measured=1, sleep=oversleep)
    (record,) = window.records
    assert (record.scheduled_s, record.sent_s) == (1.0, 1.5)
    assert (record.ttft_s, record.e2e_s) == (1.5, 2.5)


async def test_a_failed_request_is_noted_and_the_next_one_sent(time: Time, make_summary) -> None:
    service = Service(time, make_summary(2), {1: ResourceExhaustedError("full")})
    window = await drive(time, service, Level("concurrency", 1), itertools.repeat(None, 3))
    assert [(record.error_code, record.error) for record in window.records] == [
        ("", ""),
        ("RESOURCE_EXHAUSTED", "full"),
        ("", ""),
    ]
    assert window.records[1].ended_s == 3.0


async def test_a_run_ends_though_every_request_fails(time: Time, make_summary) -> None:
    service = Service(time, make_summary(2), dict.fromkeys(range(99), InternalError("no")))
    window = await drive(time, service, Level("concurrency", 2), itertools.repeat(None), num_measured=3)
    assert [record.is_ok for record in window.measured] == [False] * 3


async def test_progress_is_told_of_measured_requests_alone(time: Time, service: Service) -> None:
    told: list[None] = []
    await drive(
        time,
        service,
        Level("concurrency", 2),
        itertools.repeat(None),
        num_warm_up=2,
        num_measured=3,
        on_measured=lambda: told.append(None),
    )
    assert len(told) == 3


async def test_a_fault_of_the_client_itself_is_raised() -> None:
    def ask(request: PlannedRequest, on_tokens: Callable[[Sequence[int]], None]) -> Awaitable[Summary]:
        raise RuntimeError("broken")

    driver = Driver(ask, num_warm_up=0, num_measured=1)
    with pytest.raises(ExceptionGroup):
        await driver.run(Level("concurrency", 1), requests(itertools.repeat(None)))
