"""Watches requests from their arrival to their end: for the metrics, the traces and the logs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from orchestrator.request_telemetry.statistics import CANCELLED, RequestStatistics
from orchestrator.request_telemetry.trace import RequestTimes, add_spans, request_attributes, summary_attributes
from orchestrator.requests.caller import Caller
from orchestrator.requests.request import GenerationRequest
from orchestrator.rounds.round_log import RoundLog
from orchestrator.session import Session
from pilotfish.config import Config
from pilotfish.errors import PilotfishError, status_of
from pilotfish.rpc.answer import Summary
from pilotfish.telemetry.tracing import Tracing, end_span, traceparent

SERVICE_NAME = "pilotfish-orchestrator"


class RequestObserver:
    """Observes the requests of one orchestrator; used on its event loop. Close it."""

    def __init__(self, config: Config) -> None:
        telemetry = config.telemetry
        self.tracing = Tracing(telemetry, SERVICE_NAME)
        self.statistics = RequestStatistics()
        self.max_rounds = telemetry.max_round_spans
        """Rounds of a traced request that get spans."""
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def request(self, caller: Caller, operation: str) -> Iterator[ObservedRequest]:
        """Around all that is done for a request. operation: gen_ai.operation.name."""
        observed = ObservedRequest(self, caller, operation)
        try:
            yield observed
        except BaseException as error:
            observed.end(caller.reason_of(error))
            raise
        observed.end(None)

    def finish_trace(self, request: ObservedRequest, error: str, message: str) -> None:
        """Make the spans of a request that has ended, in the event loop's spare time."""
        task = asyncio.create_task(request.add_spans(error, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Send the last spans."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.tracing.close()


class ObservedRequest:
    """One request. Costs a few microseconds, and half a microsecond for each chunk."""

    def __init__(self, observer: RequestObserver, caller: Caller, operation: str) -> None:
        self._observer = observer
        self._operation = operation
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._span = observer.tracing.begin(operation, caller.arrival_ns + self._epoch_ns, caller.identity.trace)
        self._span.set_attribute("pilotfish.request_id", caller.identity.request_id)
        self._session: Session | None = None
        self._summary: Summary | None = None
        self.traceparent = traceparent(self._span)
        """Trace context for the replicas; empty where the request is not traced."""
        self.rounds = RoundLog(observer.max_rounds if self._span.is_recording() else 0)
        self.arrival_ns = self.first_token_ns = self.last_token_ns = caller.arrival_ns
        """Times on time.monotonic_ns()'s clock."""
        self.start_ns = caller.arrival_ns
        """When it was ready to be opened on a target."""

    def begin(self, session: Session, request: GenerationRequest, model_id: str) -> None:
        """The request's turn has come, and this session answers it."""
        self._session = session
        self.start_ns = time.monotonic_ns()
        self._observer.statistics.begin(session)
        if self._span.is_recording():
            self._span.update_name(f"{self._operation} {model_id}")
            self._span.set_attributes(request_attributes(request, model_id, self._operation))

    def add_chunk(self, num_tokens: int) -> None:
        """Note that so many tokens go to the client now."""
        now_ns = time.monotonic_ns()
        if self.first_token_ns == self.arrival_ns:
            self.first_token_ns = now_ns
            self._observer.statistics.time_to_first_token_s.observe((now_ns - self.arrival_ns) / 1e9)
        elif num_tokens:
            token_s = (now_ns - self.last_token_ns) / 1e9 / num_tokens
            for _ in range(num_tokens):
                self._observer.statistics.inter_token_s.observe(token_s)
        self.last_token_ns = now_ns

    @property
    def queue_time_ns(self) -> int:
        """Time from arrival to the first step of a target, as far as it is known."""
        on_target_ns = 0 if self._session is None else self._session.target.queue_time_ns
        return self.start_ns - self.arrival_ns + on_target_ns

    def add_summary(self, summary: Summary) -> None:
        """The account of its end, for the trace."""
        self._summary = summary

    def end(self, error: BaseException | None) -> None:
        """error: what the request failed with; None: it did not fail."""
        statistics, session = self._observer.statistics, self._session
        finish_reason = None if session is None else session.sequence.finish_reason
        failure = "" if finish_reason is not None else _failure(error)
        if session is not None:
            statistics.end(session)
            if finish_reason is not None:
                statistics.add_answer(
                    session,
                    finish_reason,
                    queue_time_ns=self.queue_time_ns,
                    first_token_ns=self.first_token_ns - self.arrival_ns,
                    total_time_ns=self.last_token_ns - self.arrival_ns,
                )
        if failure:
            statistics.failures[failure] += 1
        if self._span.is_recording():
            message = str(error) if isinstance(error, PilotfishError) else ""
            self._observer.finish_trace(self, failure, message)

    async def add_spans(self, error: str, message: str) -> None:
        """Called once, when the request has ended."""
        end_ns = time.monotonic_ns() if self.last_token_ns == self.arrival_ns or error else self.last_token_ns
        times = RequestTimes(self.arrival_ns, self.first_token_ns, end_ns, self.queue_time_ns)
        await add_spans(self._observer.tracing, self._span, times, self.rounds.records, self._epoch_ns)
        if self._summary is not None:
            self._span.set_attributes(summary_attributes(self._summary))
        end_span(self._span, end_ns + self._epoch_ns, error, message)


def _failure(error: BaseException | None) -> str:
    """A stable name for what ended a request without an answer."""
    if isinstance(error, PilotfishError):
        return status_of(error)[0].lower()
    if error is None or isinstance(error, asyncio.CancelledError | GeneratorExit):
        return CANCELLED
    return "internal"
