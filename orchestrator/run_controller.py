"""Decisions for a request whose drafter lives beside the target: whole runs, drafted or plain.

How far to draft in each step is decided there, step by step; here only whether it pays.
Pure: no I/O and no clock; what it knows is what it is told.
"""

from __future__ import annotations

from orchestrator.controller import (
    FIRST_PROBE_INTERVAL_TOKENS,
    MAX_PROBE_INTERVAL_TOKENS,
    MEASURING_TOKENS,
    Decision,
    Observation,
    standing_reason,
)
from orchestrator.measurements import Measurements, MovingAverage
from orchestrator.request import GenerationRequest


class RunController:
    """As Controller; learns what a token takes in drafted and in plain runs."""

    will_draft_soon = False
    """There is no drafter to prepare."""

    def __init__(self, request: GenerationRequest, measurements: Measurements, *, decode_run_tokens: int) -> None:
        self._mode = request.speculation.mode
        self._max_draft_tokens = request.num_speculative_tokens
        self._standing_reason = self.limitation = standing_reason(request)
        self._times = measurements.times
        self._proposer = measurements.proposer(request.speculation.proposer)
        self._drafted = MovingAverage(self._proposer.run_token_s)
        """Seconds a token takes in this request's drafted runs."""
        self._decode_run_tokens = decode_run_tokens
        self._num_plain_tokens = 0  # since the last drafted run
        self._probe_interval_tokens = FIRST_PROBE_INTERVAL_TOKENS
        self._is_probing = False

    def next_k(self, observation: Observation) -> Decision:
        """The decision for the next round."""
        self._learn(observation)
        num_remaining = observation.num_remaining_tokens
        if self._standing_reason:
            return Decision(0, num_remaining, self._standing_reason)
        if observation.drafter_absence:
            self.limitation = observation.drafter_absence
            return Decision(0, num_remaining, observation.drafter_absence)
        if self._mode == "on":
            return Decision(self._max_draft_tokens, num_remaining, "the request asks for it")
        return self._decide_by_cost(observation, min(self._decode_run_tokens, num_remaining))

    def _decide_by_cost(self, observation: Observation, num_run_tokens: int) -> Decision:
        plain_s, drafted_s = self._times.decode_s, self._drafted.value
        if observation.num_output_tokens > 0 and num_run_tokens >= MEASURING_TOKENS:
            if plain_s is None:
                return Decision(0, MEASURING_TOKENS, "plain decoding is measured first")
            if self._times.is_decode_outdated:
                return Decision(0, MEASURING_TOKENS, "plain decoding is measured again: the load may have changed")
        if plain_s is None or drafted_s is None or drafted_s < plain_s:
            self._probe_interval_tokens = FIRST_PROBE_INTERVAL_TOKENS
            return Decision(self._max_draft_tokens, num_run_tokens, "measured: the fastest")
        if self._num_plain_tokens >= self._probe_interval_tokens:
            self._probe_interval_tokens = min(2 * self._probe_interval_tokens, MAX_PROBE_INTERVAL_TOKENS)
            self._is_probing = True
            return Decision(self._max_draft_tokens, num_run_tokens, "a probe: the text may have become predictable")
        self.limitation = f"measured: plain decoding is faster ({plain_s / drafted_s:.2f} of its speed with drafts)"
        return Decision(0, num_run_tokens, self.limitation)

    def _learn(self, observation: Observation) -> None:
        num_tokens = observation.num_committed_tokens
        is_drafted = observation.num_requested_tokens > 0
        self._num_plain_tokens = 0 if is_drafted else self._num_plain_tokens + num_tokens
        # A first run holds the prefill, which is no decode step.
        is_first = observation.num_output_tokens == num_tokens
        if is_first or not observation.step_s or num_tokens < MEASURING_TOKENS:
            return
        if is_drafted:
            self._times.count_verification()
            if self._is_probing:
                self._drafted = MovingAverage()  # what was measured before the plain stretch says little now
            self._is_probing = False
            self._drafted.add(observation.step_s / num_tokens)
            self._proposer.add_run(observation.step_s, num_tokens)
        else:
            self._times.add_decode(observation.step_s, num_tokens)
