"""Counts what a replica's engine answers, and traces the sequences whose requests are traced."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from opentelemetry.trace import Span

from pilotfish.messages import Event, Opened, OpenSequence, PreparedDrafts, Proposal, SequenceError, Verdict
from pilotfish.telemetry.tracing import RemoteContext, Tracing
from pilotfish.types import SequenceErrorCode, Timings


@dataclass(slots=True)
class ReplicaCounters:
    """Since the replica started."""

    num_sequences: int = 0
    """Opened."""
    num_prompt_tokens: int = 0
    """Of these, output that was committed elsewhere before included."""
    num_cached_tokens: int = 0
    """Of these, found in the prefix cache."""
    num_output_tokens: int = 0
    """Decoded or verified."""
    num_drafts: int = 0
    """Verified."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_proposals: int = 0
    """Made here, of a draft replica."""
    num_proposed_tokens: int = 0
    num_ahead_tokens: int = 0
    """Drafted ahead."""
    errors: dict[str, int] = field(default_factory=lambda: {code.name.lower(): 0 for code in SequenceErrorCode})


@dataclass(slots=True)
class SequenceTrace:
    """What a traced sequence came to here."""

    span: Span
    num_prompt_tokens: int
    num_cached_tokens: int = 0
    num_results: int = 0
    num_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    queue_time_ns: int = 0
    compute_time_ns: int = 0

    def add(self, timings: Timings, num_tokens: int) -> None:
        self.num_results += 1
        self.num_tokens += num_tokens
        self.queue_time_ns += timings.queue_time_ns
        self.compute_time_ns += timings.compute_time_ns


class ReplicaObserver:
    """Used on the event loop of a replica's front."""

    def __init__(self, replica_id: str = "", service: str = "", tracing: Tracing | None = None) -> None:
        """service: `target` or `draft`, for the names of spans. tracing: None traces nothing."""
        self.counters = ReplicaCounters()
        self._replica_id = replica_id
        self._service = service
        self._tracing = tracing
        self._traces: dict[int, SequenceTrace] = {}

    def opened(self, command: OpenSequence) -> None:
        """A sequence goes to the engine; the command has the engine's id for it."""
        num_tokens = len(command.prompt_token_ids) + len(command.output_token_ids)
        self.counters.num_sequences += 1
        self.counters.num_prompt_tokens += num_tokens
        if self._tracing is None or not command.traceparent:
            return
        span = self._tracing.begin(f"{self._service} sequence", time.time_ns(), RemoteContext(command.traceparent))
        if span.is_recording():
            self._traces[command.sequence_id] = SequenceTrace(span, num_tokens)

    def add(self, events: Iterable[Event]) -> None:
        """The engine answers. Called for every batch of events, so it is lean."""
        counters, traces = self.counters, self._traces
        for event in events:
            if isinstance(event, Verdict):
                counters.num_output_tokens += len(event.token_ids)
                if event.num_draft_tokens:
                    counters.num_drafts += 1
                    counters.num_draft_tokens += event.num_draft_tokens
                    counters.num_accepted_tokens += event.num_accepted_tokens
            else:
                self._add_other(event)
            if traces and event.sequence_id in traces:
                _trace_event(traces[event.sequence_id], event)

    def closed(self, sequence_id: int) -> None:
        """A sequence is over here. Idempotent."""
        trace = self._traces.pop(sequence_id, None)
        if trace is None:
            return
        trace.span.set_attributes(
            {
                "pilotfish.replica": self._replica_id,
                "pilotfish.num_prompt_tokens": trace.num_prompt_tokens,
                "pilotfish.num_cached_tokens": trace.num_cached_tokens,
                "pilotfish.num_results": trace.num_results,
                "pilotfish.num_tokens": trace.num_tokens,
                "pilotfish.num_draft_tokens": trace.num_draft_tokens,
                "pilotfish.num_accepted_tokens": trace.num_accepted_tokens,
                "pilotfish.queue_time_s": trace.queue_time_ns / 1e9,
                "pilotfish.compute_time_s": trace.compute_time_ns / 1e9,
            }
        )
        trace.span.end(time.time_ns())

    async def close(self) -> None:
        """Send the last spans. Idempotent."""
        if self._tracing is not None:
            await self._tracing.close()

    def _add_other(self, event: Event) -> None:
        counters = self.counters
        if isinstance(event, Proposal):
            counters.num_proposals += 1
            counters.num_proposed_tokens += len(event.draft_token_ids)
        elif isinstance(event, PreparedDrafts):
            counters.num_ahead_tokens += len(event.draft_token_ids)
        elif isinstance(event, Opened):
            counters.num_cached_tokens += event.num_cached_tokens
        elif isinstance(event, SequenceError):
            counters.errors[event.code.name.lower()] += 1


def _trace_event(trace: SequenceTrace, event: Event) -> None:
    if isinstance(event, Verdict):
        trace.add(event.timings, len(event.token_ids))
        trace.num_draft_tokens += event.num_draft_tokens
        trace.num_accepted_tokens += event.num_accepted_tokens
    elif isinstance(event, Proposal):
        trace.add(event.timings, len(event.draft_token_ids))
    elif isinstance(event, Opened):
        trace.num_cached_tokens = event.num_cached_tokens
