"""Sends the requests of one run when they are due, and notes what comes back.

A run has three parts, and the load is the same in all of them: a warm-up that does not count, the measured
requests, and more of the like until the last measured one has ended, so that none of them finds the service
emptier than the others did.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from pilotfish.bench.load.level import Level
from pilotfish.bench.load.record import RequestRecord
from pilotfish.bench.load.workload import PlannedRequest
from pilotfish.client.answer import Summary
from pilotfish.client.async_inference import OnTokens
from pilotfish.errors import PilotfishError, status_of

PROBE_PERIOD_S = 0.02
"""The client looks this often whether its event loop keeps up."""


Ask = Callable[[PlannedRequest, OnTokens], Awaitable[Summary]]
"""Puts one request to a service and hands token ids over as they come. Raises PilotfishError."""


@dataclass(kw_only=True)
class Window:
    """What one run saw. Times are the driver's clock, in seconds."""

    records: list[RequestRecord] = field(default_factory=list)
    """Of all requests that were sent; those that the end of the run cut off have neither summary nor error."""
    start_s: float = 0.0
    """The first measured request was due."""
    end_s: float = 0.0
    """The last measured request ended."""
    cpu_share: float = 0.0
    """Of one core, that the client used from start to end of the run."""
    loop_lags_s: list[float] = field(default_factory=list)
    """How late the client's event loop woke, each time that it was looked at."""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def measured(self) -> list[RequestRecord]:
        return [record for record in self.records if record.is_measured]


class Driver:
    """One run."""

    def __init__(
        self,
        ask: Ask,
        *,
        num_warm_up: int,
        num_measured: int | None,
        on_measured: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """num_measured None: all that there are; on_measured is called when one of them has ended."""
        self._ask = ask
        self._measured = range(num_warm_up, num_warm_up + num_measured if num_measured is not None else 1 << 62)
        self._num_open = 0
        self._are_all_sent = False
        self._on_measured = on_measured
        self._clock = clock
        self._sleep = sleep
        self._window = Window()
        self._done = asyncio.Event()

    async def run(self, level: Level, requests: Iterator[PlannedRequest]) -> Window:
        """Until every measured request has ended; what is still running then is cancelled."""
        start_s, start_cpu_s = self._clock(), time.process_time()
        async with asyncio.TaskGroup() as group:
            sender = self._send_on_time(requests) if level.is_open_loop else self._keep_busy(level, requests)
            tasks = [group.create_task(sender), group.create_task(self._probe())]
            await self._done.wait()
            for task in tasks:
                task.cancel()
        window = self._window
        measured = window.measured
        window.start_s = min((record.scheduled_s for record in measured), default=start_s)
        window.end_s = max((record.ended_s for record in measured), default=start_s)
        window.cpu_share = (time.process_time() - start_cpu_s) / max(self._clock() - start_s, 1e-9)
        return window

    async def _keep_busy(self, level: Level, requests: Iterator[PlannedRequest]) -> None:
        """Closed loop: so many clients, each with one request at a time."""

        async def client() -> None:
            for request in requests:
                await self._follow(request, self._clock())
                if self._done.is_set():
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(int(level.value)):
                group.create_task(client())
        self._note_all_sent()

    async def _send_on_time(self, requests: Iterator[PlannedRequest]) -> None:
        """Open loop: every request when it is due, whatever became of the others."""
        start_s = self._clock()
        async with asyncio.TaskGroup() as group:
            for request in requests:
                assert request.arrival_s is not None
                due_s = start_s + request.arrival_s
                # Also when late: a sender that never yields would measure nothing but itself.
                await self._sleep(max(due_s - self._clock(), 0.0))
                # A timer may end a fraction of a millisecond early; no request is sent before it is due.
                while (early_s := due_s - self._clock()) > 0:
                    await self._sleep(early_s)
                group.create_task(self._follow(request, due_s))
        self._note_all_sent()

    async def _follow(self, request: PlannedRequest, due_s: float) -> None:
        is_measured = request.index in self._measured
        record = RequestRecord(request.index, is_measured, scheduled_s=due_s, sent_s=self._clock())
        self._window.records.append(record)
        self._num_open += is_measured
        if request.index + 1 == self._measured.stop:
            self._are_all_sent = True
        try:
            record.summary = await self._ask(request, lambda token_ids: record.add(token_ids, self._clock()))
        except PilotfishError as error:
            record.error_code, record.error = status_of(error)[0], str(error)
        record.ended_s = self._clock()
        if is_measured:
            self._num_open -= 1
            self._on_measured()
            self._note_ended()

    def _note_all_sent(self) -> None:
        """There are no more requests."""
        self._are_all_sent = True
        self._note_ended()

    def _note_ended(self) -> None:
        if self._are_all_sent and self._num_open == 0:
            self._done.set()

    async def _probe(self) -> None:
        while True:
            due_s = self._clock() + PROBE_PERIOD_S
            await asyncio.sleep(PROBE_PERIOD_S)
            self._window.loop_lags_s.append(max(self._clock() - due_s, 0.0))
