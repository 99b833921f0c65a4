"""How many tokens to draft next: decided from what is measured, explained with a reason.

K is what maximises expected output tokens per second (2211.17192, equation 1, with measured acceptance by position)
if all sequences that decode on the replica did the same: under load a draft token costs everybody time, and a
sequence that looked only at itself would always draft (2406.14066).
Pure: no I/O and no clock; what it knows is what it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from orchestrator.control.acceptance_belief import AcceptanceBelief
from orchestrator.control.answer_share import AnswerShare
from orchestrator.control.batch_rules import BatchRules
from orchestrator.control.decision import Decision, Observation
from orchestrator.control.foreseen import Foreseen, Unlearned
from orchestrator.control.measurements import Measurements
from orchestrator.control.prices import Asking, Offer, Prices
from orchestrator.control.probe import Probe
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_record import ReplicaRecord
from orchestrator.control.seat import Seat
from orchestrator.control.standing import standing_reason
from orchestrator.requests.request import GenerationRequest
from pilotfish.config import SpeculationConfig
from pilotfish.speculation.cost import best_gain

_Counter = Callable[[int], None]

MEASURING_TOKENS = 4
"""Shorter runs would measure the round trip more than the decoding."""
_MARGIN = 0.02
"""Speed that has to be gained for a reason to be looked for elsewhere."""
_OWN_LOSS, _OWN_RETURN = 0.9, 0.97
"""Where speculation pays for the others: a request whose own drafts make it slower than this goes off, and on again.
One's prices are everybody's, so that a moment that is dear for all is left to the gate."""
_OWN_GAIN, _OWN_LEAVE = 1.15, 1.05
"""Where it does not: a request whose own drafts make it faster than this goes on, and off again."""
_COMMON_LENGTH, _OWN_LENGTH = 0.02, 0.015
"""Speed that has to be gained for another draft length: for that of all requests, and for one of a request's own.
Sequences with drafts of one length stay in step with each other, and one round's luck is no reason to leave it."""
_DRAFTING = frozenset((Reason.FASTEST, Reason.REQUESTED))
"""After a round that was decided for so, the next one most likely is as well."""
_GOOD_ACCEPTANCE = 0.9
"""Where drafting would not even pay with this, it is not for the drafts that are rejected."""


class Controller:
    """Decides for one request; learns for all of them through `measurements`. Close it when the request ends."""

    def __init__(self, request: GenerationRequest, measurements: Measurements, config: SpeculationConfig) -> None:
        self._mode = request.speculation.mode
        self._proposer_name = request.speculation.proposer
        self._max_draft_tokens = request.num_speculative_tokens
        self._max_tokens = request.sampling.max_tokens
        self._measurements = measurements
        self._proposer = measurements.proposer(self._proposer_name)
        self._acceptance = AcceptanceBelief(self._proposer.acceptance)
        self._answers = AnswerShare(self._proposer.answers)
        self._rules = BatchRules(config)
        self._min_acceptance_rate = config.min_acceptance_rate
        self._decode_run_tokens = config.decode_run_tokens
        self._seat = Seat(measurements, self._proposer_name)
        self._empty_run_tokens = 1
        """Decoded plainly where the drafter has no idea: doubled each time, back to 1 when a draft token is accepted.
        Asking again costs a round trip in which the target waits."""
        self._is_drafting = False
        """Whether the round under way was to have a draft because that pays, or is wished."""
        self._is_on: bool | None = None
        """What was decided last by cost; None before."""
        self._last_arrival_s = 0.0
        """When what came before the last round's verdict did."""
        self._num_plain_tokens = 0  # since the last draft, or the last one that went wrong
        self._probe = Probe()
        self._counters: tuple[_Counter, ...] = ()
        """What waits for the tokens of the run under way."""
        self._standing_reason = standing_reason(request, config)
        self.limitation_reason: Reason | None = self._standing_reason
        """Why speculation was off or limited, for the summary."""
        self._problem = ""
        """What the drafter says about its failure or absence."""
        self._foreseen: Foreseen | None = None
        self._unlearned: Unlearned | None = None

    @property
    def will_draft_soon(self) -> bool:
        """Whether it is worth while that the drafter reads the prompt now."""
        if self._standing_reason:
            return False
        return self._mode == "on" or self._may_draft_on(self._seat.replica)

    @property
    def limitation(self) -> str:
        """The limitation for people; empty if there was none."""
        if self.limitation_reason in (Reason.NO_DRAFTER, Reason.DRAFTER_FAILED):
            return self._problem
        return self.limitation_reason.text if self.limitation_reason else ""

    @property
    def draft_token_counts(self) -> Counter[int]:
        """Rounds of the request by the draft tokens they asked for."""
        return self._seat.draft_tokens

    def next_k(self, observation: Observation) -> Decision:
        """The decision for the next round."""
        self._learn_rest()
        has_stayed = self._seat.is_at(observation.replica_id)
        self._take(observation)
        decision = self._foreseen_after(observation) if has_stayed else None
        self._foreseen = None
        if decision is None:
            self._learn_rest()
            decision = self._decide(observation)
        self._is_drafting = decision.reason in _DRAFTING
        if decision.reason.is_limiting:
            self.limitation_reason = decision.reason
        num_draft_tokens = self._proposer.num_draft_tokens(decision.num_draft_tokens)
        self._seat.note(decision, num_draft_tokens, self._answers.value)
        return decision

    def catch_up(self) -> None:
        """Learn what the last decision did not wait for, and prepare the next one: while the target verifies, so that
        none of its steps waits for this. Whoever never calls it has every decision made when it is asked for."""
        self._learn_rest()
        self._foreseen = self._foresee() if self._is_drafting else None

    def note_draft(self, num_draft_tokens: int) -> None:
        """What came of the last decision: so many draft tokens are verified. 0: the target decodes plainly."""
        if num_draft_tokens == 0:
            self._is_drafting = False
            self._learn_rest()  # a run may be long
        self._seat.note_draft(num_draft_tokens)

    def end(self, observation: Observation) -> None:
        """The last round, which no decision follows. Of a verification it tells nothing: what ends an answer may cut
        off what was accepted."""
        self._learn_rest()
        if not observation.num_draft_tokens:
            self._take(observation)
            self._learn_rest()

    def close(self, now_s: float, num_decoded_tokens: int = 0) -> None:
        """The request has ended; num_decoded_tokens: decoded plainly since the last decision. Idempotent."""
        self._learn_rest()
        self._is_drafting = False
        self._count_plain(num_decoded_tokens)
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
        asking = self._asking(allowed)
        if allowed == 0 or asking.probabilities[0] < self._min_acceptance_rate:
            return None
        offer = self._offer(replica, asking, allowed)
        if not self._pays(offer):
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
        num_run_tokens = 1 if observation.num_accepted_tokens else self._empty_run_tokens
        return replace(
            decision,
            num_draft_tokens=min(decision.num_draft_tokens, limit),
            num_decode_tokens=min(num_run_tokens, observation.num_remaining_tokens),
        )

    def _take(self, observation: Observation) -> None:
        """Count it where it decodes; what it teaches can wait."""
        self._seat.take(observation)
        self._unlearned = Unlearned(observation, self._seat.replica.rows_per_sequence)

    def _learn_rest(self) -> None:
        rest, self._unlearned = self._unlearned, None
        if rest is not None:
            self._count_plain(rest.observation.num_decoded_tokens)
            self._learn(rest.observation, rest.num_rows)
            self._last_arrival_s = rest.observation.now_s

    # Deciding.

    def _decide(self, observation: Observation) -> Decision:
        num_remaining = observation.num_remaining_tokens
        if self._standing_reason:
            return Decision(0, num_remaining, self._standing_reason)
        if observation.drafter_absence:
            self._problem = observation.drafter_absence
            return Decision(0, self._seat.plain_run_tokens(observation, self._decode_run_tokens), Reason.NO_DRAFTER)
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
        reason, self._counters = self._reason_against(replica, self._asking(limit), self._prices(replica))
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
        asking = self._asking(allowed)
        if asking.probabilities[0] < self._min_acceptance_rate:
            probe = self._probed(limit, num_remaining)
            probing = replica.rounds(self._proposer_name).probing
            return probe or self._off(observation, Reason.ACCEPTANCE_FLOOR, (probing.count_plain_tokens,))
        offer = self._offer(replica, asking, allowed)
        if self._pays(offer):
            return self._take_up(offer, limit, num_remaining)
        reason, counters = self._reason_against(replica, asking, offer.prices)
        if reason is not Reason.LOAD and (probe := self._probed(limit, num_remaining)):
            return probe
        return self._off(observation, reason, counters)

    def _offer(self, replica: ReplicaRecord, asking: Asking, allowed: int) -> Offer:
        """asking: of as many draft tokens as are allowed under the load."""
        prices = self._prices(replica)
        is_open = self._update_gate(replica, prices, allowed)
        rounds = replica.rounds(self._proposer_name)
        level = rounds.level(replica.decode_load)
        num_draft_tokens, gain = prices.best(asking, level.num_draft_tokens, _OWN_LENGTH)
        if not is_open:
            gain *= level.achieved.ratio
        elif rounds.gate.lasting_gain is not None and replica.decode_load > 1:
            # Prices wander by a fifth within tenths of a second: all would leave one by one in a moment that is dear
            # for all, and rounds of those who stay become slower still. A request leaves for its own drafts.
            gain *= max(1.0, rounds.gate.lasting_gain / (level.expected_tokens_per_s * prices.plain_s))
        return Offer(num_draft_tokens, gain, is_open, prices)

    def _pays(self, offer: Offer) -> bool:
        return offer.gain >= self._least_gain(offer.is_open)

    def _take_up(self, offer: Offer, limit: int, num_remaining: int) -> Decision:
        self._switch(True)
        if offer.is_open or self._seat.replica.decode_load == 1:
            # That one's own drafts pay where the others' do not is no reason to try theirs sooner.
            self._proposer.add_success()
        # A verification costs more than a step of a run: mostly the round trip, and more on a busy machine.
        min_accepted = max(0.0, offer.prices.rounds_s[1] / offer.prices.plain_s - 1)
        return self._drafted(min(offer.num_draft_tokens, limit), num_remaining, Reason.FASTEST, min_accepted)

    def _prices(self, replica: ReplicaRecord) -> Prices:
        proposer = self._proposer
        answered_share = proposer.answers.value
        return replica.prices(self._proposer_name, self._max_draft_tokens, proposer.num_draft_tokens, answered_share)

    def _asking(self, num_positions: int) -> Asking:
        """What this request expects of its drafter."""
        return Asking(self._acceptance.probabilities(num_positions), self._answers.value, self._empty_run_tokens)

    def _update_gate(self, replica: ReplicaRecord, prices: Prices, max_draft_tokens: int) -> bool:
        """Whether speculation pays for those that decode there, with drafts as good as all requests' are, of no more
        than max_draft_tokens."""
        rounds = replica.rounds(self._proposer_name)
        gate = rounds.gate
        if gate.judged.get(self._max_draft_tokens) is prices and gate.is_open is not None:
            return gate.is_open
        gate.judged[self._max_draft_tokens] = prices
        was_open = gate.is_open
        level = rounds.level(replica.decode_load)
        asking = self._proposer.asking(max_draft_tokens)
        level.num_draft_tokens, gain = prices.best(asking, level.num_draft_tokens, _COMMON_LENGTH)
        level.expected_tokens_per_s = gain / prices.plain_s
        gain *= level.achieved.ratio
        is_open = gate.update(
            gain, replica.decode_load, replica.own_load, is_measured=level.is_measured, is_retry=level.is_retry_due
        )
        if is_open:
            level.is_retry_due = False
        if was_open is not None and was_open != is_open:
            self._measurements.counts.add_switch(is_open)
        return is_open

    def _least_gain(self, is_open: bool) -> float:
        if is_open:
            return _OWN_RETURN if self._is_on is False else _OWN_LOSS
        return _OWN_LEAVE if self._is_on else _OWN_GAIN

    def _reason_against(
        self, replica: ReplicaRecord, asking: Asking, prices: Prices
    ) -> tuple[Reason, tuple[_Counter, ...]]:
        """Why drafting does not pay now, and what waits for the tokens that are decoded instead."""
        num_sequences, rounds = replica.decode_load, replica.rounds(self._proposer_name)
        gate = partial(rounds.gate.count_plain_tokens, state_number=rounds.gate.state_number)
        probing = rounds.probing.count_plain_tokens
        # No probe of a single sequence tells what rounds take when all draft, nor do a lone one's rare probes outweigh
        # slow first rounds: all of them try it, some time.
        level = partial(rounds.level(num_sequences).count_plain_tokens, num_sequences=replica.own_load)
        if prices.best(asking, is_ideal=True)[1] > 1 + _MARGIN:
            return Reason.ROUND_TIME, (gate, probing, level)
        good = Asking([_GOOD_ACCEPTANCE] * len(asking.probabilities))
        if prices.best(good, is_ideal=True)[1] > 1 + _MARGIN:
            # If rounds were too slow as well, that is looked into when acceptance is good again; but what proposals
            # took, when they failed perhaps, may be all that is wrong.
            free_gain = best_gain(asking.probabilities, prices.plain_s, prices.steps_s)[1]
            return Reason.ACCEPTANCE, (gate, probing, level) if free_gain > 1 + _MARGIN else (gate, probing)
        if num_sequences > 1:
            return Reason.LOAD, (gate,)
        return Reason.ROUND_TIME, (gate, probing, level)

    def _probed(self, limit: int, num_remaining: int) -> Decision | None:
        """A draft although it does not seem to pay, where it is time for one; verified whatever it promises, for two
        tokens never promise what a round costs where that is much."""
        if self._probe.num_rounds and not self._may_pay():
            self._fail_probe()
        if not self._probe.is_under_way:
            replica, interval_tokens = self._seat.replica, self._probe_interval_tokens
            if not replica.takes_probe(self._proposer_name, interval_tokens, self._num_plain_tokens):
                return None
            self._probe.begin()
            self._empty_run_tokens = 1
        return self._drafted(min(self._probe.num_draft_tokens, limit), num_remaining, Reason.PROBE)

    def _drafted(
        self, num_draft_tokens: int, num_remaining: int, reason: Reason, min_accepted_tokens: float = 0.0
    ) -> Decision:
        num_run_tokens = min(self._empty_run_tokens, num_remaining)
        return Decision(num_draft_tokens, num_run_tokens, reason, min_accepted_tokens)

    def _off(self, observation: Observation, reason: Reason, counters: tuple[_Counter, ...] = ()) -> Decision:
        """counters: of the tokens, once they are decoded."""
        self._switch(False)
        self._counters = counters
        return Decision(0, self._seat.plain_run_tokens(observation, self._decode_run_tokens), reason)

    def _count_plain(self, num_tokens: int) -> None:
        """So many of the run that was decided for last were decoded."""
        for count in self._counters:
            count(num_tokens)
        self._counters = ()

    def _may_pay(self) -> bool:
        """Whether it is worth while to go on with a probe of which all was accepted."""
        if self._probe.is_exhausted:
            return False
        replica = self._seat.replica
        prices, limit = self._prices(replica), self._rules.max_draft_tokens(replica, self._max_draft_tokens)
        # What drafts take is not learned in a probe: if it is too much, all may be accepted for ever.
        gain = prices.best(Asking([1.0] * limit), is_ideal=True)[1]
        return replica.rounds(self._proposer_name).level(replica.decode_load).achieved.ratio * gain > 1

    def _fail_probe(self) -> None:
        self._probe.end()
        self._proposer.add_failed_probe()

    def _switch(self, is_on: bool) -> None:
        self._is_on = is_on
        if is_on:
            self._probe.add_success()

    def _may_draft_on(self, replica: ReplicaRecord) -> bool:
        """Whether drafts seem to pay there. That all agree is not asked, only whether they were found not to."""
        if not replica.costs.is_known:
            return True
        limit = self._rules.max_draft_tokens(replica, min(self._max_draft_tokens, self._max_tokens))
        gain = self._prices(replica).best(self._asking(limit))[1]
        rounds = replica.rounds(self._proposer_name)
        if rounds.gate.is_closed_under(replica.decode_load):
            return gain * rounds.level(replica.decode_load).achieved.ratio >= self._least_gain(is_open=False)
        return gain > 1

    @property
    def _probe_interval_tokens(self) -> int:
        return max(self._probe.interval_tokens, self._proposer.probe_interval_tokens)

    # Learning.

    def _learn(self, observation: Observation, num_rows: float) -> None:
        """num_rows: of each sequence on the replica, when the round was over."""
        replica, reads_first = self._seat.replica, self._reads_first(observation)
        was_asked = observation.num_requested_tokens > 0 and not observation.is_draft_deferred
        is_vain = was_asked and observation.num_decoded_tokens > 0 and not observation.draft_problem
        is_probe = self._probe.is_under_way
        if was_asked:
            # An empty proposal was waited for, too. A probe's tells nothing: none of it was made ahead, and those who
            # decode plainly meanwhile may be many.
            if not reads_first and not is_probe:
                replica.add_propose(
                    self._proposer_name,
                    observation.num_requested_tokens,
                    observation.propose_s,
                    observation.propose_compute_s,
                )
            if not observation.draft_problem:  # of a drafter that fails others take care
                self._learn_of_answers(replica, has_answer=not is_vain)
            self._learn_from_proposal(observation)
        self._num_plain_tokens += observation.num_decoded_tokens
        # A first run holds the prefill, which is no decode step.
        is_first = observation.num_output_tokens == observation.num_decoded_tokens
        if not observation.step_s or is_first:
            return
        elapsed_s = observation.round_s(self._last_arrival_s)
        # Only they follow the promise. What cut into a run came in a time that is not known.
        is_cut = observation.num_draft_tokens > 0 and observation.num_decoded_tokens > 0
        if self._mode == "auto" and not is_cut and not observation.draft_problem:
            replica.add_tokens(self._proposer_name, observation.num_committed_tokens, elapsed_s)
        # The first question waits for the prompt to be read, and a draft that cut into the run has a time of its own.
        num_before = observation.num_output_tokens - observation.num_decoded_tokens
        if is_vain and not is_probe and num_before > 1 and not observation.num_draft_tokens:
            replica.add_vain_ask(self._proposer_name, observation.num_decoded_tokens, elapsed_s)
        if observation.num_decoded_tokens >= MEASURING_TOKENS:
            replica.add_decode(observation.token_s - observation.prefill_s)
        elif not observation.num_decoded_tokens and not reads_first:
            replica.add_round(self._proposer_name, observation.num_requested_tokens, elapsed_s, num_rows)

    def _learn_of_answers(self, replica: ReplicaRecord, *, has_answer: bool) -> None:
        self._answers.add(has_answer=has_answer)
        # Where only those draft whom it helps, their answers are better than everybody's. A probe is one question.
        if self._probe.is_under_way:
            is_anybodys = not self._probe.num_rounds
        else:
            is_anybodys = self._mode == "on" or replica.rounds(self._proposer_name).gate.is_open is not False
        if is_anybodys:
            self._proposer.answers.add(has_answer=has_answer)

    def _reads_first(self, observation: Observation) -> bool:
        """Whether the proposal had to wait until the drafter had read the prompt, or what was decoded plainly."""
        return self._num_plain_tokens >= self._decode_run_tokens or observation.num_output_tokens <= 1

    def _learn_from_proposal(self, observation: Observation) -> None:
        num_accepted = observation.num_accepted_tokens
        if observation.num_draft_tokens:
            depth = observation.draft_depth or observation.num_draft_tokens
            self._acceptance.add(depth, num_accepted)
            self._proposer.add_shape(depth, observation.num_draft_tokens)
        else:
            self._empty_run_tokens = min(2 * self._empty_run_tokens, self._decode_run_tokens)
        if num_accepted:
            self._empty_run_tokens = 1
        if observation.draft_problem:
            self.limitation_reason, self._problem = Reason.DRAFTER_FAILED, observation.draft_problem
        if not observation.num_draft_tokens and not observation.draft_problem:
            if self._probe.is_under_way:
                self._num_plain_tokens = 0
                self._probe.end()
                self._proposer.add_vain_probe()
            return
        self._num_plain_tokens = 0
        if not self._probe.is_under_way:
            return
        if observation.num_draft_tokens and num_accepted >= (observation.draft_depth or observation.num_draft_tokens):
            self._probe.go_on(self._max_draft_tokens)
            return
        if observation.num_draft_tokens:  # of a drafter that fails others take care
            self._probe.add_rejection()
        self._fail_probe()
