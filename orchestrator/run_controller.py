"""Decisions for a request whose drafter lives beside the target: whole runs, drafted or plain.

How far to draft in each step is decided there, step by step; here only whether it pays.
Pure: no I/O and no clock; what it knows is what it is told.
"""

from __future__ import annotations

from collections import Counter

from orchestrator.control.batch_rules import BatchRules
from orchestrator.control.decision import Decision, Observation
from orchestrator.control.limitation import Limitation
from orchestrator.control.measurements import Measurements
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_record import MEASURING_TOKENS
from orchestrator.control.seat import Seat
from orchestrator.control.standing import standing_reason
from orchestrator.control.window import MedianWindow
from orchestrator.requests.request import GenerationRequest
from pilotfish.config import SpeculationConfig

_MARGIN = 0.03
"""What is on goes off, and what is off goes on, where the median is better by so much."""
_TOKENS_PER_STEP = 3
"""Of a drafted run, about."""
_MIN_RUNS = 3
"""Measured before anything is concluded; as many of one's own overrule what all requests measured."""


class RunController:
    """As Controller; learns what a token takes in drafted and in plain runs."""

    will_draft_soon = False
    """There is no drafter to prepare."""

    def __init__(self, request: GenerationRequest, measurements: Measurements, config: SpeculationConfig) -> None:
        self._mode = request.speculation.mode
        self._max_draft_tokens = request.num_speculative_tokens
        self._standing_reason = standing_reason(request, config)
        self.limitation = Limitation(self._standing_reason)
        self._measurements = measurements
        self._proposer_name = request.speculation.proposer
        self._proposer = measurements.proposer(self._proposer_name)
        self._rules = BatchRules(config)
        self._own_runs = MedianWindow(size=5)
        """Seconds that a token takes in this request's drafted runs."""
        self._decode_run_tokens = max(config.decode_run_tokens, MEASURING_TOKENS)
        """Of shorter runs nothing would be learned."""
        self._seat = Seat(measurements, self._proposer_name)
        self._num_plain_tokens = 0  # since the last drafted run
        self._is_on: bool | None = None
        self._is_probing = False
        self._waits_for_probe = False
        """Whether the run under way is decoded in a probe's stead."""

    @property
    def draft_token_counts(self) -> Counter[int]:
        """Runs of the request by the draft tokens they allowed."""
        return self._seat.draft_tokens

    def next_k(self, observation: Observation) -> Decision:
        """The decision for the next round."""
        self._take(observation)
        decision = self._decide(observation)
        self.limitation.note(decision)
        self._seat.note(decision, decision.num_draft_tokens)
        return decision

    def catch_up(self) -> None:
        """Nothing: runs are long, and their drafts no round trip."""

    def note_draft(self, num_draft_tokens: int) -> None:
        """What came of the last decision: so many draft tokens are verified. 0: the target decodes plainly."""
        self._seat.note_draft(num_draft_tokens)

    def end(self, observation: Observation) -> None:
        """The last round, which no decision follows: it may be the only one. Where no run is short, that of a whole
        answer tells of no load."""
        if self._mode == "auto":
            self._take(observation)

    def close(self, now_s: float, num_decoded_tokens: int = 0) -> None:
        """The request has ended; num_decoded_tokens: decoded plainly since the last decision. Idempotent."""
        self._count_plain(num_decoded_tokens)
        self._seat.leave(now_s)

    def _decide(self, observation: Observation) -> Decision:
        num_remaining = observation.num_remaining_tokens
        if self._standing_reason:
            return Decision(0, num_remaining, self._standing_reason)
        if observation.drafter_absence:
            return Decision(0, num_remaining, Reason.NO_DRAFTER, details=observation.drafter_absence)
        if self._mode == "on":
            return Decision(self._max_draft_tokens, num_remaining, Reason.REQUESTED)
        replica = self._seat.replica
        num_run_tokens = min(self._decode_run_tokens, num_remaining)
        limit = self._rules.max_draft_tokens(replica, self._max_draft_tokens)
        if limit == 0:
            return self._off(observation, Reason.BATCH_SIZE)
        # Of an answer that is one run nothing else would be measured plainly.
        is_later_or_only = observation.num_output_tokens > 0 or num_remaining <= self._decode_run_tokens
        is_measurable = is_later_or_only and num_run_tokens >= MEASURING_TOKENS
        if is_measurable and replica.take_measurement():
            return Decision(0, MEASURING_TOKENS, Reason.MEASURING)
        return self._decide_by_time(limit, num_run_tokens, observation)

    def _decide_by_time(self, limit: int, num_run_tokens: int, observation: Observation) -> Decision:
        plain_s, drafted_s = self._seat.replica.plain_s(), self._drafted_s()
        margin = 1 + _MARGIN if self._is_on is not False else 1 - _MARGIN
        if not plain_s or drafted_s is None or drafted_s < margin * plain_s:
            self._switch(True)
            return Decision(limit, num_run_tokens, Reason.FASTEST)
        if self._is_probing or self._takes_probe():
            self._is_probing = True
            return Decision(limit, num_run_tokens, Reason.PROBE)
        self._waits_for_probe = True
        gain = plain_s / drafted_s
        details = f"measured: plain decoding is faster ({gain:.2f} of its speed with drafts)"
        return self._off(observation, Reason.ACCEPTANCE, details)

    def _takes_probe(self) -> bool:
        interval_tokens = self._proposer.probe_interval_tokens
        return self._seat.replica.takes_probe(self._proposer_name, interval_tokens, self._num_plain_tokens)

    def _drafted_s(self) -> float | None:
        """Seconds of a token in a drafted run, as measured by this request, else by all under this load."""
        if len(self._own_runs) >= _MIN_RUNS:
            return self._own_runs.value
        shared = self._shared_runs
        return shared.value if len(shared) >= _MIN_RUNS else None

    @property
    def _shared_runs(self) -> MedianWindow:
        """Of all requests on the replica under this load."""
        replica = self._seat.replica
        return replica.rounds(self._proposer_name).runs[replica.decode_load.bit_length()]

    def _off(self, observation: Observation, reason: Reason, details: str = "") -> Decision:
        self._switch(False)
        num_run_tokens = self._seat.plain_run_tokens(observation, self._decode_run_tokens)
        return Decision(0, num_run_tokens, reason, details=details)

    def _count_plain(self, num_tokens: int) -> None:
        """So many of the run that was decided for last were decoded."""
        if self._waits_for_probe:
            self._seat.replica.rounds(self._proposer_name).probing.count_plain_tokens(num_tokens)
        self._waits_for_probe = False

    def _switch(self, is_on: bool) -> None:
        if self._is_on is not None and self._is_on != is_on:
            self._measurements.counts.add_switch(is_on)
            self._own_runs.forget()  # what was measured before the plain stretch says little now
        if is_on:
            self._proposer.add_success()
            self._is_probing = False
        self._is_on = is_on

    def _take(self, observation: Observation) -> None:
        self._seat.take(observation)
        self._count_plain(observation.num_decoded_tokens)
        self._learn(observation)

    def _learn(self, observation: Observation) -> None:
        num_tokens = observation.num_committed_tokens
        is_drafted = observation.num_requested_tokens > 0
        self._num_plain_tokens = 0 if is_drafted else self._num_plain_tokens + num_tokens
        token_s = observation.token_s - observation.prefill_s
        if token_s <= 0 or num_tokens < MEASURING_TOKENS:
            return
        replica = self._seat.replica
        if not is_drafted:
            replica.add_decode(token_s)
            return
        replica.count_verifications(num_tokens // _TOKENS_PER_STEP)
        self._own_runs.add(token_s)
        self._shared_runs.add(token_s)
        if self._is_probing and token_s >= (1 - _MARGIN) * replica.plain_s():
            self._is_probing = False
            self._own_runs.forget()
            self._proposer.add_failed_probe()
