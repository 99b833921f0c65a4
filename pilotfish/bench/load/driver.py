"""Keeps so many requests in flight, and notes what comes back.

A run has three parts, and the load is the same in all of them: a warm-up that does not count, the measured
requests, and more of the like until the last measured one has ended, so that none of them finds the service
emptier than the others did.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pilotfish.bench.load.workload import PlannedRequest
from pilotfish.bench.measurement import Arrival, Measurement
from pilotfish.client.answer import Summary
from pilotfish.client.async_inference import OnTokens
from pilotfish.errors import PilotfishError, status_of

Ask = Callable[[PlannedRequest, OnTokens], Awaitable[Summary]]
"""Puts one request to a service and hands token ids over as they come. Raises PilotfishError."""
_NOTHING = Measurement(token_ids=(), arrivals=())


@dataclass(slots=True)
class RequestRecord:
    """What became of one request. Times are the client's clock, in seconds; the answer's count from sent_s."""

    index: int
    """Requests of one index are the same in every mode."""
    is_measured: bool
    """Neither warm-up nor there to keep the load up until the measured ones have ended."""
    sent_s: float
    ended_s: float = 0.0
    """When the call ended; 0: the end of the run cut it off."""
    answer: Measurement = _NOTHING
    """The answer as far as it came; without a summary if it broke off."""
    error_code: str = ""
    """The gRPC status name of a failure; empty: none."""
    error: str = ""

    @property
    def is_ok(self) -> bool:
        """Answered to its end, with at least one token."""
        return self.answer.summary is not None and bool(self.answer.arrivals)


@dataclass(kw_only=True)
class Window:
    """What one run saw. Times are the driver's clock, in seconds."""

    records: list[RequestRecord] = field(default_factory=list)
    """Records of all requests that were sent."""
    start_s: float = 0.0
    """The first measured request was sent."""
    end_s: float = 0.0
    """The last measured request ended."""
    cpu_share: float = 0.0
    """Share of one core that the client used from start to end of the run."""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def measured(self) -> list[RequestRecord]:
        return [record for record in self.records if record.is_measured]


class Driver:
    def __init__(
        self,
        ask: Ask,
        *,
        concurrency: int,
        num_measured: int,
        on_measured: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """concurrency: clients, each with one request at a time; as many requests warm up. on_measured: called when a
        measured one has ended."""
        self._ask = ask
        self._concurrency = concurrency
        self._measured = range(concurrency, concurrency + num_measured)
        self._num_left = num_measured
        self._on_measured = on_measured
        self._clock = clock
        self._window = Window()
        self._done = asyncio.Event()

    async def run(self, requests: Iterator[PlannedRequest]) -> Window:
        """Ask until every measured request has ended; what is still running then is cancelled."""
        start_s, start_cpu_s = self._clock(), time.process_time()
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self._keep_asking(requests)) for _ in range(self._concurrency)]
            await self._done.wait()
            for client in clients:
                client.cancel()
        window = self._window
        window.start_s = min(record.sent_s for record in window.measured)
        window.end_s = max(record.ended_s for record in window.measured)
        window.cpu_share = (time.process_time() - start_cpu_s) / max(self._clock() - start_s, 1e-9)
        return window

    async def _keep_asking(self, requests: Iterator[PlannedRequest]) -> None:
        for request in requests:
            record = RequestRecord(request.index, request.index in self._measured, sent_s=self._clock())
            self._window.records.append(record)
            await self._follow(request, record)
            if record.is_measured:
                self._on_measured()
                self._num_left -= 1
            if not self._num_left:
                self._done.set()
                return

    async def _follow(self, request: PlannedRequest, record: RequestRecord) -> None:
        arrivals: list[Arrival] = []
        token_ids: list[int] = []
        summary = None

        def on_tokens(new_token_ids: Sequence[int]) -> None:
            arrivals.append(Arrival(self._clock() - record.sent_s, len(new_token_ids)))
            token_ids.extend(new_token_ids)

        try:
            summary = await self._ask(request, on_tokens)
        except PilotfishError as error:
            record.error_code = status_of(error)[0]
            record.error = str(error)
        finally:  # what the end of the run cuts off has tokens, too
            record.answer = Measurement(token_ids=tuple(token_ids), arrivals=tuple(arrivals), summary=summary)
        record.ended_s = self._clock()
