"""One row of vLLM's batch as a trace: how its drafts came about. vLLM's own spans of the request are vLLM's."""

from __future__ import annotations

import time
from typing import Protocol

from pilotfish.config import TelemetryConfig
from pilotfish.telemetry.tracing import Span, Tracing


class RowTrace(Protocol):
    """What a draft sequence tells."""

    @property
    def traceparent(self) -> str:
        """For the draft replica's span; empty: it is not traced."""

    def add_proposal(self, elapsed_s: float, num_tokens: int) -> None:
        """A draft came, so long after it was asked for."""

    def add_verified(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """vLLM verified a draft."""

    def end(self, num_output_tokens: int) -> None:
        """The row is over. Idempotent."""


class _Untraced:
    """Most rows, where nothing is exported."""

    traceparent = ""

    def add_proposal(self, elapsed_s: float, num_tokens: int) -> None: ...

    def add_verified(self, num_draft_tokens: int, num_accepted_tokens: int) -> None: ...

    def end(self, num_output_tokens: int) -> None: ...


NO_TRACE: RowTrace = _Untraced()


class RecordedRow:
    """See the module. Keeps as many proposals as are wanted, spread evenly over the row."""

    def __init__(self, tracing: Tracing, span: Span, max_proposals: int | None) -> None:
        """max_proposals: None keeps all."""
        self._tracing = tracing
        self._span = span
        self._max_proposals = max_proposals
        self._stride = 1
        self._num_proposals = 0
        self._proposals: list[tuple[int, int, int]] = []
        """Start and end since the epoch in ns, draft tokens."""
        self._num_draft_tokens = self._num_accepted_tokens = self._num_rounds = 0
        self._has_ended = False

    @property
    def traceparent(self) -> str:
        return self._span.traceparent

    def add_proposal(self, elapsed_s: float, num_tokens: int) -> None:
        self._num_proposals += 1
        if self._num_proposals % self._stride:
            return
        now_ns = time.time_ns()
        self._proposals.append((now_ns - int(elapsed_s * 1e9), now_ns, num_tokens))
        if self._max_proposals is not None and len(self._proposals) > self._max_proposals:
            self._proposals = self._proposals[1::2]
            self._stride *= 2

    def add_verified(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        self._num_rounds += 1
        self._num_draft_tokens += num_draft_tokens
        self._num_accepted_tokens += num_accepted_tokens

    def end(self, num_output_tokens: int) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        for start_ns, end_ns, num_tokens in self._proposals:
            self._tracing.add(self._span, "propose", start_ns, end_ns, {"pilotfish.num_draft_tokens": num_tokens})
        self._span.attributes = {
            "gen_ai.usage.output_tokens": num_output_tokens,
            "pilotfish.speculation.num_rounds": self._num_rounds,
            "pilotfish.speculation.num_draft_tokens": self._num_draft_tokens,
            "pilotfish.speculation.num_accepted_tokens": self._num_accepted_tokens,
        }
        self._span.end(time.time_ns())


class RowTracing:
    """Makes the traces of one proposer. On the event loop."""

    def __init__(self, config: TelemetryConfig) -> None:
        self._tracing = Tracing(config, "pilotfish-vllm")
        self._max_proposals = None if config.round_spans == "all" else config.max_round_spans
        self._has_rounds = config.round_spans != "off"

    def begin(self) -> RowTrace:
        """Of a new row."""
        span = self._tracing.begin("speculation", time.time_ns())
        if not span.is_recording:
            return NO_TRACE
        return RecordedRow(self._tracing, span, self._max_proposals if self._has_rounds else 0)

    async def close(self) -> None:
        """Send what is left."""
        await self._tracing.close()
