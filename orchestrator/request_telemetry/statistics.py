"""What became of the requests of one orchestrator: counted when it is cheap, read by metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from orchestrator.session import Session
from pilotfish.telemetry.histogram import COUNT_BOUNDS, LATENCY_BOUNDS_S, TOKEN_BOUNDS_S, Histogram
from pilotfish.types import FinishReason

CANCELLED = "cancelled"
"""Outcome of a request whose client went away."""


@dataclass(slots=True)
class RequestTotals:
    """Sums over requests."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Of the prompts, those found in a target's prefix cache."""
    num_output_tokens: int = 0
    num_plain_tokens: int = 0
    """Of the output, those decoded without a draft."""
    num_rounds: int = 0
    """Verifications of a draft."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_per_position: list[int] = field(default_factory=list)
    """Element i: rounds in which draft token i was accepted."""
    num_missed_deadlines: int = 0
    num_failovers: int = 0

    def add(self, session: Session) -> None:
        """Add one request, as far as it has come."""
        sequence, target, statistics = session.sequence, session.target, session.sequence.statistics
        if target.has_answered:
            self.num_prompt_tokens += len(sequence.request.prompt_token_ids)
            self.num_cached_tokens += target.num_cached_tokens
        self.num_output_tokens += sequence.num_output_tokens
        self.num_plain_tokens += sequence.num_plain_tokens
        self.num_rounds += statistics.num_rounds
        self.num_draft_tokens += statistics.num_draft_tokens
        self.num_accepted_tokens += statistics.num_accepted_tokens
        self._add_positions(statistics.num_accepted_tokens_per_position)
        self.num_missed_deadlines += session.drafter.num_missed_deadlines
        self.num_failovers += target.num_failovers

    def copy(self) -> RequestTotals:
        """The same sums, to add more to."""
        totals = RequestTotals()
        for name in self.__slots__:
            setattr(totals, name, getattr(self, name))
        totals.num_accepted_per_position = list(self.num_accepted_per_position)
        return totals

    def _add_positions(self, counts: tuple[int, ...]) -> None:
        own = self.num_accepted_per_position
        own.extend([0] * (len(counts) - len(own)))
        for position, count in enumerate(counts):
            own[position] += count


class RequestStatistics:
    """Used on the orchestrator's event loop.

    Counts per token nothing but the latencies: what a request has come to is known to its session, and sessions that
    still run are added up when somebody asks.
    """

    def __init__(self) -> None:
        self._active: set[Session] = set()
        self._ended = RequestTotals()
        self.outcomes: Counter[FinishReason] = Counter()
        """Answers that came to their end."""
        self.failures: Counter[str] = Counter()
        """Requests that did not, by gRPC status in lower case, CANCELLED included."""
        self.time_to_first_token_s = Histogram(LATENCY_BOUNDS_S)
        self.inter_token_s = Histogram(TOKEN_BOUNDS_S)
        """Of the tokens after an answer's first; those that come together share the time since the ones before."""
        self.queue_time_s = Histogram(LATENCY_BOUNDS_S)
        self.total_time_s = Histogram(LATENCY_BOUNDS_S)
        self.prompt_tokens = Histogram(COUNT_BOUNDS)
        self.output_tokens = Histogram(COUNT_BOUNDS)

    def begin(self, session: Session) -> None:
        """A request is being answered."""
        self._active.add(session)

    def end(self, session: Session) -> None:
        """It is not any more. Idempotent."""
        if session in self._active:
            self._active.remove(session)
            self._ended.add(session)

    def add_answer(
        self, session: Session, finish_reason: FinishReason, *, queue_time_ns: int, total_time_ns: int
    ) -> None:
        """An answer came to its end."""
        self.outcomes[finish_reason] += 1
        self.queue_time_s.add(queue_time_ns / 1e9)
        self.total_time_s.add(total_time_ns / 1e9)
        self.prompt_tokens.add(len(session.sequence.request.prompt_token_ids))
        self.output_tokens.add(session.sequence.num_output_tokens)

    @property
    def totals(self) -> RequestTotals:
        """Sums over all requests, those that still run included."""
        totals = self._ended.copy()
        for session in self._active:
            totals.add(session)
        return totals
