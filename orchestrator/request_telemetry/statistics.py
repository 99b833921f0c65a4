"""What became of the requests of one orchestrator: counted when it is cheap, read by metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from prometheus_client import Histogram

from orchestrator.requests.kind import Kind
from orchestrator.requests.request import lossy_by_of
from orchestrator.session import Session
from pilotfish.types import FinishReason

_LATENCY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of whole requests and of their parts."""
_TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper bounds of the time of one token."""
_COUNT_BOUNDS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
"""Upper bounds of tokens in a prompt or an answer."""

CANCELLED = "cancelled"
"""Outcome of a request whose client went away."""


@dataclass(slots=True)
class RequestTotals:
    """Sums over requests."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens found in a target's prefix cache."""
    num_output_tokens: int = 0
    num_plain_tokens: int = 0
    """Output tokens decoded without a draft."""
    num_rounds: int = 0
    """Verifications of a draft."""
    num_draft_tokens: Counter[Kind] = field(default_factory=Counter)
    """Draft tokens that were verified, by kind of request."""
    num_accepted_tokens: Counter[Kind] = field(default_factory=Counter)
    """Draft tokens that were accepted, by kind of request."""
    num_grammar_draft_tokens: int = 0
    """Draft tokens that only a request's grammar drafted; in the counts by kind, too."""
    num_grammar_accepted_tokens: int = 0
    num_accepted_per_position: list[int] = field(default_factory=list)
    """Element i: rounds in which draft token i was accepted."""
    num_missed_deadlines: int = 0
    num_failovers: int = 0
    num_lossy_output_tokens: int = 0
    """Output tokens of requests with lossy acceptance or steps."""
    num_steps: int = 0
    """Drafted steps of reasoning that were judged."""
    num_accepted_steps: int = 0

    def add(self, session: Session) -> None:
        """Add one request, as far as it has come."""
        sequence, target, statistics = session.sequence, session.target, session.sequence.statistics
        if target.has_answered:
            self.num_prompt_tokens += len(sequence.request.prompt_token_ids)
            if sequence.request.num_prompt_logprobs is None:  # else scoring has just computed it
                self.num_cached_tokens += target.num_cached_tokens
        self.num_output_tokens += sequence.num_output_tokens
        self.num_steps += session.steps.num_steps
        self.num_accepted_steps += session.steps.num_accepted_steps
        if lossy_by_of(sequence.request):
            self.num_lossy_output_tokens += sequence.num_output_tokens
        self.num_plain_tokens += sequence.num_plain_tokens
        self.num_rounds += statistics.num_rounds
        self.num_draft_tokens[sequence.request.kind] += statistics.num_draft_tokens
        self.num_accepted_tokens[sequence.request.kind] += statistics.num_accepted_tokens
        self.num_grammar_draft_tokens += sequence.num_grammar_draft_tokens
        self.num_grammar_accepted_tokens += sequence.num_grammar_accepted_tokens
        self._add_positions(statistics.num_accepted_tokens_per_position)
        self.num_missed_deadlines += session.drafter.num_missed_deadlines
        self.num_failovers += target.num_failovers

    def copy(self) -> RequestTotals:
        """A copy to add more to."""
        return replace(
            self,
            num_draft_tokens=self.num_draft_tokens.copy(),
            num_accepted_tokens=self.num_accepted_tokens.copy(),
            num_accepted_per_position=list(self.num_accepted_per_position),
        )

    def _add_positions(self, counts: tuple[int, ...]) -> None:
        own = self.num_accepted_per_position
        own.extend([0] * (len(counts) - len(own)))
        for position, count in enumerate(counts):
            own[position] += count


class RequestStatistics:
    """Sums of all requests. Used on the orchestrator's event loop.

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
        self.histograms: list[Histogram] = []
        """All of the next ones, for a scrape."""
        self.time_to_first_token_s = self._histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", _LATENCY_BOUNDS_S
        )
        self.inter_token_s = self._histogram(
            "inter_token_latency_seconds",
            "Time of a token after the first; tokens that come together share the time since those before.",
            _TOKEN_BOUNDS_S,
        )
        self.total_time_s = self._histogram(
            "e2e_request_latency_seconds", "From arrival to the last token.", _LATENCY_BOUNDS_S
        )
        self.queue_time_s = self._histogram(
            "request_queue_time_seconds", "From arrival to the first step of a target.", _LATENCY_BOUNDS_S
        )
        self.prefill_time_s = self._histogram(
            "request_prefill_time_seconds", "From there to the first token.", _LATENCY_BOUNDS_S
        )
        self.decode_time_s = self._histogram(
            "request_decode_time_seconds", "From the first token to the last.", _LATENCY_BOUNDS_S
        )
        self.prompt_tokens = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a finished request.", _COUNT_BOUNDS
        )
        self.output_tokens = self._histogram(
            "request_generation_tokens", "Output tokens of a finished request.", _COUNT_BOUNDS
        )

        self.longest_output = self._histogram(
            "request_max_num_generation_tokens", "The same: each of `n` answers is a request here.", _COUNT_BOUNDS
        )

    def begin(self, session: Session) -> None:
        self._active.add(session)

    def end(self, session: Session) -> None:
        """The session is over. Idempotent."""
        if session in self._active:
            self._active.remove(session)
            self._ended.add(session)

    def add_answer(
        self,
        session: Session,
        finish_reason: FinishReason,
        *,
        queue_time_ns: int,
        first_token_ns: int,
        total_time_ns: int,
    ) -> None:
        """An answer came to its end. Times are from its arrival."""
        self.outcomes[finish_reason] += 1
        self.queue_time_s.observe(queue_time_ns / 1e9)
        self.prefill_time_s.observe(max(0, first_token_ns - queue_time_ns) / 1e9)
        self.decode_time_s.observe((total_time_ns - first_token_ns) / 1e9)
        self.total_time_s.observe(total_time_ns / 1e9)
        self.prompt_tokens.observe(len(session.sequence.request.prompt_token_ids))
        self.output_tokens.observe(session.sequence.num_output_tokens)
        self.longest_output.observe(session.sequence.num_output_tokens)

    @property
    def totals(self) -> RequestTotals:
        """Sums over all requests, those that still run included."""
        totals = self._ended.copy()
        for session in self._active:
            totals.add(session)
        return totals

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        self.histograms.append(Histogram(name, text, buckets=bounds, registry=None))
        return self.histograms[-1]
