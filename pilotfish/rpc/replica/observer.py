"""Counts what a replica's engine answers, and traces the sequences whose requests are traced."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span

from pilotfish.messages import Event, Opened, OpenSequence, Predrafted, Proposal, SequenceError, Verdict
from pilotfish.telemetry.tracing import RemoteContext, Tracing
from pilotfish.types import SequenceErrorCode


@dataclass(slots=True)
class ReplicaCounters:
    """Counts since the replica started."""

    num_sequences: int = 0
    """Opened sequences."""
    num_prompt_tokens: int = 0
    """Prompt tokens of these, output that was committed elsewhere before included."""
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    num_output_tokens: int = 0
    """Tokens decoded or verified."""
    num_drafts: int = 0
    """Drafts verified."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_proposals: int = 0
    """Proposals made here, of a draft replica."""
    num_proposed_tokens: int = 0
    num_ahead_tokens: int = 0
    """Tokens drafted ahead."""
    errors: dict[str, int] = field(default_factory=lambda: {code.name.lower(): 0 for code in SequenceErrorCode})


@dataclass(slots=True)
class SequenceTrace:
    """What a traced sequence came to here."""

    span: Span
    attributes: defaultdict[str, Any]
    """Attributes that its span will have."""

    def add(self, event: Event) -> None:
        attributes = self.attributes
        if isinstance(event, Verdict):
            attributes["num_tokens"] += len(event.token_ids)
            attributes["num_draft_tokens"] += event.num_draft_tokens
            attributes["num_accepted_tokens"] += event.num_accepted_tokens
        elif isinstance(event, Proposal):
            attributes["num_tokens"] += len(event.draft_token_ids)
        if isinstance(event, Verdict | Proposal):
            attributes["num_results"] += 1
            attributes["queue_time_s"] += event.timings.queue_time_ns / 1e9
            attributes["compute_time_s"] += event.timings.compute_time_ns / 1e9
        elif isinstance(event, Opened):
            attributes["num_cached_tokens"] = event.num_cached_tokens


class ReplicaObserver:
    """Counts and traces sequences and events. Used on the event loop of a replica's front."""

    def __init__(self, replica_id: str = "", service: str = "", tracing: Tracing | None = None) -> None:
        """service: `target` or `draft`, for the names of spans. tracing: None: no traces."""
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
        span = self._tracing.begin(f"{self._service} sequence", time.time_ns(), RemoteContext.of(command.traceparent))
        if span.is_recording():
            attributes = {"replica": self._replica_id, "num_prompt_tokens": num_tokens}
            self._traces[command.sequence_id] = SequenceTrace(span, defaultdict(int, attributes))

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
                traces[event.sequence_id].add(event)

    def closed(self, sequence_id: int) -> None:
        """A sequence is over here. Idempotent."""
        trace = self._traces.pop(sequence_id, None)
        if trace is None:
            return
        trace.span.set_attributes({f"pilotfish.{name}": value for name, value in trace.attributes.items()})
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
        elif isinstance(event, Predrafted):
            counters.num_ahead_tokens += len(event.draft_token_ids)
        elif isinstance(event, Opened):
            counters.num_cached_tokens += event.num_cached_tokens
        elif isinstance(event, SequenceError):
            counters.errors[event.code.name.lower()] += 1
