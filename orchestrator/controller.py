"""How many tokens to draft next: decided from what is measured, explained with a reason.

K is what maximises expected output tokens per second (2211.17192, equation 1, with measured acceptance by position)
if all sequences that decode on the replica did the same: under load a draft token costs everybody time, and a
sequence that looked only at itself would always draft (2406.14066).
Pure: no I/O and no clock; what it knows is what it is told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from orchestrator.control.batch_rules import BatchRules
from orchestrator.control.decision import Decision, Observation
from orchestrator.control.foreseen import Foreseen
from orchestrator.control.lessons import Lessons
from orchestrator.control.limitation import Limitation
from orchestrator.control.measurements import Measurements
from orchestrator.control.probe import Probe
from orchestrator.control.probing import TokenCounter
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_record import MEASURING_TOKENS, ReplicaRecord
from orchestrator.control.seat import Seat
from orchestrator.control.standing import standing_reason
from orchestrator.control.worth import Offer, Worth
from orchestrator.requests.request import GenerationRequest
from pilotfish.config import SpeculationConfig

_DRAFTING = frozenset((Reason.FASTEST, Reason.REQUESTED))
"""After a round that was decided for so, the next one most likely is as well."""


class Controller:
    """Decides for one request; learns for all of them through `measurements`. Close it when the request ends."""

    def __init__(self, request: GenerationRequest, measurements: Measurements, config: SpeculationConfig) -> None:
        self._mode = request.speculation.mode
        self._proposer_name = request.speculation.proposer
        self._max_draft_tokens = request.num_speculative_tokens
        self._max_tokens = request.sampling.max_tokens
        self._proposer = measurements.proposer(self._proposer_name)
        self._rules = BatchRules(config)
        self._min_acceptance_rate = config.min_acceptance_rate
        self._decode_run_tokens = config.decode_run_tokens
        self._standing_reason = standing_reason(request, config)
        self.limitation = Limitation(self._standing_reason)
        self._seat = Seat(measurements, self._proposer_name)
        self._probe = Probe()
        self._lessons = Lessons(request, measurements, config, self._seat, self._probe, self.limitation)
        self._worth = Worth(request, measurements)
        self._is_drafting = False
        """Whether the round under way was to have a draft because that pays, or is wished."""
        self._foreseen: Foreseen | None = None

    @property
    def will_draft_soon(self) -> bool:
        """Whether it is worth while that the drafter reads the prompt now."""
        if self._standing_reason:
            return False
        return self._mode == "on" or self._may_draft_on(self._seat.replica)

    @property
    def draft_token_counts(self) -> Counter[int]:
        """Rounds of the request by the draft tokens they asked for."""
        return self._seat.draft_tokens

    def next_k(self, observation: Observation) -> Decision:
        """The decision for the next round."""
        self._lessons.learn()
        has_stayed = self._seat.is_at(observation.replica_id)
        self._lessons.take(observation)
        decision = self._foreseen_after(observation) if has_stayed else None
        self._foreseen = None
        if decision is None:
            self._lessons.learn()
            decision = self._decide(observation)
        self._is_drafting = decision.reason in _DRAFTING
        self.limitation.note(decision)
        num_draft_tokens = self._proposer.num_draft_tokens(decision.num_draft_tokens)
        self._seat.note(decision, num_draft_tokens, self._lessons.answered_share)
        return decision

    def catch_up(self) -> None:
        """Learn what the last decision did not wait for, and prepare the next one: while the target verifies, so that
        none of its steps waits for this. Whoever never calls it has every decision made when it is asked for."""
        self._lessons.learn()
        self._foreseen = self._foresee() if self._is_drafting else None

    def note_draft(self, num_draft_tokens: int) -> None:
        """What came of the last decision: so many draft tokens are verified. 0: the target decodes plainly."""
        if num_draft_tokens == 0:
            self._is_drafting = False
            self._lessons.learn()  # a run may be long
        self._seat.note_draft(num_draft_tokens)

    def end(self, observation: Observation) -> None:
        """The last round, which no decision follows. Of a verification it tells nothing: what ends an answer may cut
        off what was accepted."""
        self._lessons.learn()
        if not observation.num_draft_tokens:
            self._lessons.take(observation)
            self._lessons.learn()

    def close(self, now_s: float, num_decoded_tokens: int = 0) -> None:
        """The request has ended; num_decoded_tokens: decoded plainly since the last decision. Idempotent."""
        self._lessons.learn()
        self._is_drafting = False
        self._lessons.count_plain(num_decoded_tokens)
        self._seat.leave(now_s)

    # Foreseeing.

    def _foresee(self) -> Foreseen | None:
        """Go on drafting, while all that is known speaks for it; None: that is decided when the round is over."""
        if self._mode == "on":
            return Foreseen(self._drafted(self._max_draft_tokens, self._max_tokens, Reason.REQUESTED), 0)
        replica = self._seat.replica
        if replica.is_measurement_due or not replica.costs.is_known:
            return None
        allowed = self._rules.max_draft_tokens(replica, self._max_draft_tokens)
        asking = self._lessons.asking(allowed)
        if allowed == 0 or asking.probabilities[0] < self._min_acceptance_rate:
            return None
        offer = self._worth.offer(replica, asking, allowed)
        if not self._worth.pays(offer):
            return None
        gate = replica.rounds(self._proposer_name).gate
        return Foreseen(self._take_up(offer, allowed, self._max_tokens), gate.state_number)

    def _foreseen_after(self, observation: Observation) -> Decision | None:
        """What was foreseen, unless the round was no verification of a draft, or something else speaks against it."""
        is_verified = observation.num_draft_tokens > 0 and not observation.num_decoded_tokens
        if self._foreseen is None or not is_verified or observation.drafter_absence:
            return None
        limit, decision = observation.num_remaining_tokens - 1, self._foreseen.decision
        if self._mode == "auto":
            replica = self._seat.replica
            is_same_state = replica.rounds(self._proposer_name).gate.state_number == self._foreseen.gate_state
            if observation.is_drafter_saturated or not is_same_state:
                return None
            limit = min(limit, self._rules.max_draft_tokens(replica, self._max_draft_tokens))
        if limit <= 0:
            return None
        # An accepted token ends the ever longer runs, which is not learned yet.
        num_run_tokens = 1 if observation.num_accepted_tokens else self._lessons.empty_run_tokens
        return replace(
            decision,
            num_draft_tokens=min(decision.num_draft_tokens, limit),
            num_decode_tokens=min(num_run_tokens, observation.num_remaining_tokens),
        )

    # Deciding.

    def _decide(self, observation: Observation) -> Decision:
        num_remaining = observation.num_remaining_tokens
        if self._standing_reason:
            return Decision(0, num_remaining, self._standing_reason)
        if observation.drafter_absence:
            num_run_tokens = self._seat.plain_run_tokens(observation, self._decode_run_tokens)
            return Decision(0, num_run_tokens, Reason.NO_DRAFTER, details=observation.drafter_absence)
        num_run_tokens = min(self._decode_run_tokens, num_remaining)
        if observation.num_output_tokens == 0:
            return Decision(0, self._num_first_tokens(num_run_tokens), Reason.FIRST_TOKEN)
        # The target adds a token of its own to what it accepts.
        limit = min(self._max_draft_tokens, num_remaining - 1)
        if limit <= 0:
            return Decision(0, 1, Reason.LAST_TOKEN)
        if self._mode == "on":
            return self._drafted(limit, num_remaining, Reason.REQUESTED)
        if observation.is_drafter_saturated:
            return Decision(0, num_run_tokens, Reason.DRAFT_POOL_SATURATED)
        return self._decide_by_load(observation, limit, num_run_tokens)

    def _num_first_tokens(self, num_run_tokens: int) -> int:
        """Where no draft will follow, the round trip after the first token is spared, too. The run may be the whole
        answer, so that what waits for plain tokens waits for these, and a probe that is due cannot come later."""
        if self.will_draft_soon:
            return 1
        replica = self._seat.replica
        limit = self._rules.max_draft_tokens(replica, self._max_draft_tokens)
        if limit == 0 or num_run_tokens <= 2:
            return num_run_tokens
        asking, prices = self._lessons.asking(limit), self._worth.prices(replica)
        reason, counters = self._worth.reason_against(replica, asking, prices)
        self._lessons.tell_when_decoded(counters)
        if reason is not Reason.LOAD and replica.is_probe_due(
            self._proposer_name, self._proposer.probe_interval_tokens
        ):
            return 1
        return num_run_tokens

    def _decide_by_load(self, observation: Observation, limit: int, num_run_tokens: int) -> Decision:
        replica, num_remaining = self._seat.replica, observation.num_remaining_tokens
        if num_remaining >= MEASURING_TOKENS and replica.take_measurement():
            return Decision(0, MEASURING_TOKENS, Reason.MEASURING)
        if not replica.costs.is_known:
            return Decision(0, num_run_tokens, Reason.MEASURING)
        # Also in the last tokens: one that goes off among those who speculate waits for their steps with each of them.
        allowed = self._rules.max_draft_tokens(replica, self._max_draft_tokens)
        if allowed == 0:
            return self._off(observation, Reason.BATCH_SIZE)
        limit = min(limit, allowed)
        asking = self._lessons.asking(allowed)
        if asking.probabilities[0] < self._min_acceptance_rate:
            probe = self._probed(limit, num_remaining)
            probing = replica.rounds(self._proposer_name).probing
            return probe or self._off(observation, Reason.ACCEPTANCE_FLOOR, (probing.count_plain_tokens,))
        offer = self._worth.offer(replica, asking, allowed)
        if self._worth.pays(offer):
            return self._take_up(offer, limit, num_remaining)
        reason, counters = self._worth.reason_against(replica, asking, offer.prices)
        if reason is not Reason.LOAD and (probe := self._probed(limit, num_remaining)):
            return probe
        return self._off(observation, reason, counters)

    def _take_up(self, offer: Offer, limit: int, num_remaining: int) -> Decision:
        self._switch(True)
        if offer.is_open or self._seat.replica.decode_load == 1:
            # That one's own drafts pay where the others' do not is no reason to try theirs sooner.
            self._proposer.add_success()
        # A verification costs more than a step of a run: mostly the round trip, and more on a busy machine.
        min_accepted = max(0.0, offer.prices.rounds_s[1] / offer.prices.plain_s - 1)
        return self._drafted(min(offer.num_draft_tokens, limit), num_remaining, Reason.FASTEST, min_accepted)

    def _probed(self, limit: int, num_remaining: int) -> Decision | None:
        """A draft although it does not seem to pay, where it is time for one; verified whatever it promises, for two
        tokens never promise what a round costs where that is much."""
        if self._probe.num_rounds and not self._may_pay():
            self._lessons.fail_probe()
        if not self._probe.is_under_way:
            replica, interval_tokens = self._seat.replica, self._probe_interval_tokens
            if not replica.takes_probe(self._proposer_name, interval_tokens, self._lessons.num_plain_tokens):
                return None
            self._lessons.begin_probe()
        return self._drafted(min(self._probe.num_draft_tokens, limit), num_remaining, Reason.PROBE)

    def _drafted(
        self, num_draft_tokens: int, num_remaining: int, reason: Reason, min_accepted_tokens: float = 0.0
    ) -> Decision:
        num_run_tokens = min(self._lessons.empty_run_tokens, num_remaining)
        return Decision(num_draft_tokens, num_run_tokens, reason, min_accepted_tokens)

    def _off(self, observation: Observation, reason: Reason, counters: tuple[TokenCounter, ...] = ()) -> Decision:
        """counters: of the tokens, once they are decoded."""
        self._switch(False)
        self._lessons.tell_when_decoded(counters)
        return Decision(0, self._seat.plain_run_tokens(observation, self._decode_run_tokens), reason)

    def _may_pay(self) -> bool:
        """Whether it is worth while to go on with a probe of which all was accepted."""
        if self._probe.is_exhausted:
            return False
        replica = self._seat.replica
        # What drafts take is not learned in a probe: if it is too much, all may be accepted for ever.
        return self._worth.could_pay(replica, self._rules.max_draft_tokens(replica, self._max_draft_tokens))

    def _switch(self, is_on: bool) -> None:
        self._worth.note(is_on=is_on)
        if is_on:
            self._probe.add_success()

    def _may_draft_on(self, replica: ReplicaRecord) -> bool:
        if not replica.costs.is_known:
            return True
        limit = self._rules.max_draft_tokens(replica, min(self._max_draft_tokens, self._max_tokens))
        return self._worth.seems_to_pay(replica, self._lessons.asking(limit))

    @property
    def _probe_interval_tokens(self) -> int:
        return max(self._probe.interval_tokens, self._proposer.probe_interval_tokens)
