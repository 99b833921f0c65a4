"""How many tokens to draft next: decided from what is measured, explained with a reason.

Pure: no I/O and no clock; what it knows is what it is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.measurements import Measurements, new_acceptance
from orchestrator.request import GenerationRequest
from pilotfish.speculation.cost import best_num_draft_tokens

MIN_AUTO_OUTPUT_TOKENS = 10
"""Shorter answers end before a drafter that has to read the prompt repays it."""
MEASURING_TOKENS = 4
"""Shorter runs would measure the round trip more than the decoding."""
_PROBE_TOKENS = 2
"""Draft tokens of a probe: enough to see whether guesses hold again."""
FIRST_PROBE_INTERVAL_TOKENS = 32
MAX_PROBE_INTERVAL_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the last round asked for, cost and yielded; all zero before the first."""

    num_output_tokens: int = 0
    """Committed so far."""
    num_remaining_tokens: int
    """Output tokens still allowed."""
    num_requested_tokens: int = 0
    """Draft tokens asked of the drafter."""
    num_draft_tokens: int = 0
    """Draft tokens verified."""
    num_accepted_tokens: int = 0
    draft_depth: int = 0
    """Of a tree: those on its longest path. 0: they were a chain."""
    num_decoded_tokens: int = 0
    """Tokens of the last round that were decoded plainly."""
    num_committed_tokens: int = 0
    """All tokens of the last round."""
    propose_s: float = 0.0
    step_s: float = 0.0
    """Time of the verification or of the whole decode run; 0 where it was not measured."""
    draft_problem: str = ""
    """Why the last proposal was empty, when something went wrong."""
    drafter_absence: str = ""
    """Why no proposal can be had now; empty if one can."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the next round does, and why."""

    num_draft_tokens: int
    """To ask of the drafter, one after another: the depth where it answers with a tree; 0 asks for none."""
    num_decode_tokens: int
    """To decode plainly where there is no draft."""
    reason: str
    min_accepted_tokens: float = 0.0
    """A draft that promises less is not worth the round trip of a verification."""


class Controller:
    """Decides for one request; learns for all of them through `measurements`."""

    def __init__(
        self,
        request: GenerationRequest,
        measurements: Measurements,
        *,
        decode_run_tokens: int,
    ) -> None:
        self._mode = request.speculation.mode
        self._max_draft_tokens = request.num_speculative_tokens
        self._max_tokens = request.sampling.max_tokens
        self._times = measurements.times
        self._proposer = measurements.proposer(request.speculation.proposer)
        self._acceptance = new_acceptance(prior=self._proposer.acceptance.probabilities(1)[0])
        self._decode_run_tokens = decode_run_tokens
        self._empty_run_tokens = 1
        """Decoded plainly where the drafter has no idea: doubled each time, back to 1 when a draft token is accepted.
        Asking again costs a round trip in which the target waits."""
        self._num_plain_tokens = 0  # since the last draft, or the last one that went wrong
        self._probe_interval_tokens = FIRST_PROBE_INTERVAL_TOKENS
        self._is_probing = False
        self._standing_reason = standing_reason(request)
        self.limitation = self._standing_reason
        """Why speculation was off or limited, for the summary; empty if it was not."""

    @property
    def will_draft_soon(self) -> bool:
        """Whether it is worth while that the drafter reads the prompt now."""
        if self._standing_reason:
            return False
        decode_s = self._times.decode_s
        return self._mode == "on" or decode_s is None or self._best_k(self._max_tokens, decode_s) > 0

    def next_k(self, observation: Observation) -> Decision:
        """The decision for the next round."""
        self._learn(observation)
        return self._decide(observation)

    def _decide(self, observation: Observation) -> Decision:
        num_remaining = observation.num_remaining_tokens
        if self._standing_reason:
            return Decision(0, num_remaining, self._standing_reason)
        num_run_tokens = min(self._decode_run_tokens, num_remaining)
        if observation.drafter_absence:
            return self._limited(num_run_tokens, observation.drafter_absence)
        if observation.num_output_tokens == 0:
            return Decision(0, 1, "the first token waits for no drafter")
        # The target adds a token of its own to what it accepts.
        limit = min(self._max_draft_tokens, num_remaining - 1)
        if limit == 0:
            return Decision(0, 1, "one token is left")
        if self._mode == "on":
            return self._drafted(limit, num_remaining, "the request asks for it")
        return self._decide_by_cost(limit, num_remaining)

    def _decide_by_cost(self, limit: int, num_remaining: int) -> Decision:
        num_run_tokens = min(self._decode_run_tokens, num_remaining)
        decode_s = self._times.decode_s
        if decode_s is None:
            return Decision(0, min(MEASURING_TOKENS, num_run_tokens), "plain decoding is measured first")
        if self._times.is_decode_outdated and num_remaining >= MEASURING_TOKENS:
            return Decision(0, MEASURING_TOKENS, "plain decoding is measured again: the load may have changed")
        num_draft_tokens = self._best_k(limit, decode_s)
        if num_draft_tokens > 0:
            self._probe_interval_tokens = FIRST_PROBE_INTERVAL_TOKENS
            # A verification costs more than a step of a run: mostly the round trip, and more on a busy machine.
            min_accepted = max(0.0, self._times.verify_s(1) / decode_s - 1)
            return self._drafted(num_draft_tokens, num_remaining, "measured: the fastest", min_accepted)
        if self._num_plain_tokens >= self._probe_interval_tokens:
            self._is_probing = True
            num_draft_tokens = min(_PROBE_TOKENS, limit)
            return self._drafted(num_draft_tokens, num_remaining, "a probe: the text may have become predictable")
        chance = self._acceptance.probabilities(1)[0]
        return self._limited(num_run_tokens, f"measured: plain decoding is faster (acceptance of a token {chance:.2f})")

    def _best_k(self, limit: int, decode_s: float) -> int:
        limit = min(limit, self._max_draft_tokens)
        return best_num_draft_tokens(
            self._acceptance.probabilities(limit),
            limit,
            verify_time=lambda depth: self._times.verify_s(self._proposer.num_draft_tokens(depth)),
            draft_time=self._proposer.propose_s,
            decode_time=decode_s,
        )

    def _drafted(
        self, num_draft_tokens: int, num_remaining: int, reason: str, min_accepted_tokens: float = 0.0
    ) -> Decision:
        num_run_tokens = min(self._empty_run_tokens, num_remaining)
        return Decision(num_draft_tokens, num_run_tokens, reason, min_accepted_tokens)

    def _limited(self, num_decode_tokens: int, reason: str) -> Decision:
        self.limitation = reason
        return Decision(0, num_decode_tokens, reason)

    def _learn(self, observation: Observation) -> None:
        if observation.num_requested_tokens:
            # An empty proposal was waited for, too.
            self._proposer.add_propose(observation.propose_s, observation.num_requested_tokens)
            self._learn_from_proposal(observation)
        self._num_plain_tokens += observation.num_decoded_tokens
        # A first run holds the prefill, which is no decode step.
        is_first = observation.num_output_tokens == observation.num_decoded_tokens
        if not observation.step_s or is_first:
            return
        if observation.num_decoded_tokens >= MEASURING_TOKENS:
            self._times.add_decode(observation.step_s, observation.num_decoded_tokens)
        elif not observation.num_decoded_tokens:
            self._times.add_verify(observation.step_s, observation.num_draft_tokens)

    def _learn_from_proposal(self, observation: Observation) -> None:
        if observation.num_draft_tokens:
            depth = observation.draft_depth or observation.num_draft_tokens
            self._acceptance.add(depth, observation.num_accepted_tokens)
            self._proposer.acceptance.add(depth, observation.num_accepted_tokens)
            self._proposer.add_shape(depth, observation.num_draft_tokens)
        else:
            self._empty_run_tokens = min(2 * self._empty_run_tokens, self._decode_run_tokens)
        if observation.num_accepted_tokens:
            self._empty_run_tokens = 1
        if observation.draft_problem:
            self.limitation = observation.draft_problem
        if observation.num_draft_tokens or observation.draft_problem:
            self._num_plain_tokens = 0
            if self._is_probing:
                self._probe_interval_tokens = min(2 * self._probe_interval_tokens, MAX_PROBE_INTERVAL_TOKENS)
            self._is_probing = False


def standing_reason(request: GenerationRequest) -> str:
    """Why this request never speculates; empty if it may."""
    if request.speculation.mode == "off":
        return "the request or the server's default turns speculation off"
    if request.num_speculative_tokens == 0:
        return "num_speculative_tokens is 0"
    if request.speculation.mode == "auto" and request.sampling.max_tokens < MIN_AUTO_OUTPUT_TOKENS:
        return f"answers of fewer than {MIN_AUTO_OUTPUT_TOKENS} tokens do not repay a drafter"
    return ""
