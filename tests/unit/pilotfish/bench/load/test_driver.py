"""The driver on a clock of its own: who is sent when, what counts, when it ends."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

from pilotfish.bench.load.driver import Driver, Window
from pilotfish.bench.load.workload import PlannedRequest
from pilotfish.client.answer import Summary, TokenPrompt
from pilotfish.errors import PilotfishError, ResourceExhaustedError
from tests.support.summaries import make_summary


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
    """Answers two tokens, one after a second (or as told by index) and one after another; fails what it is told to."""

    def __init__(
        self,
        time: Time,
        summary: Summary,
        *,
        fails: dict[int, PilotfishError] | None = None,
        first_s: dict[int, float] | None = None,
    ) -> None:
        self._time = time
        self._summary = summary
        self._fails = fails or {}
        self._first_s = first_s or {}
        self.num_running = self.most_running = 0

    async def ask(self, request: PlannedRequest, on_tokens: Callable[[Sequence[int]], None]) -> Summary:
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            for token_id, pause_s in ((1, self._first_s.get(request.index, 1.0)), (2, 1.0)):
                await self._time.sleep(pause_s)
                if request.index in self._fails:
                    raise self._fails[request.index]
                on_tokens([token_id])
            return self._summary
        finally:
            self.num_running -= 1


def requests() -> Iterator[PlannedRequest]:
    for index in itertools.count():
        yield PlannedRequest(index, TokenPrompt((1,)), 2, 0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def service(time: Time) -> Service:
    return Service(time, make_summary())


async def drive(time: Time, service: Service, **options: object) -> Window:
    driver = Driver(service.ask, clock=time.clock, **options)
    clockwork = asyncio.create_task(time.run())
    try:
        return await driver.run(requests())
    finally:
        clockwork.cancel()


async def test_so_many_are_in_flight_until_the_last_measured_one_ends(time: Time, service: Service) -> None:
    window = await drive(time, service, concurrency=3, num_measured=4)
    assert service.most_running == 3
    assert [record.index for record in window.measured] == [3, 4, 5, 6]
    # Three warm up until 2 s; three are measured from then, and one more from 4 s on, beside others that do not count.
    assert (window.start_s, window.end_s) == (2.0, 6.0)
    assert [record.index for record in window.records] == list(range(9))
    assert service.num_running == 0


async def test_times_of_an_answer_count_from_when_it_was_sent(time: Time, service: Service) -> None:
    window = await drive(time, service, concurrency=1, num_measured=1)
    (record,) = window.measured
    assert (record.sent_s, record.ended_s) == (2.0, 4.0)
    assert [arrival.time_s for arrival in record.answer.arrivals] == [1.0, 2.0]
    assert record.answer.token_ids == (1, 2)
    assert record.is_ok


async def test_a_failed_request_is_noted_and_the_next_one_sent(time: Time) -> None:
    service = Service(time, make_summary(), fails={1: ResourceExhaustedError("full")})
    window = await drive(time, service, concurrency=1, num_measured=2)
    assert [(record.error_code, record.error) for record in window.records] == [
        ("", ""),
        ("RESOURCE_EXHAUSTED", "full"),
        ("", ""),
    ]
    assert window.records[1].ended_s == 3.0
