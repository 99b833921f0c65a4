"""What drafting is worth to one request, at prices that are everybody's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from orchestrator.control.measurements import Measurements
from orchestrator.control.prices import Asking, Prices
from orchestrator.control.probing import TokenCounter
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_record import ReplicaRecord
from orchestrator.requests.request import GenerationRequest
from pilotfish.speculation.cost import best_gain

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
_GOOD_ACCEPTANCE = 0.9
"""Where drafting would not even pay with this, it is not for the drafts that are rejected."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What drafting promises one request now."""

    num_draft_tokens: int
    """The best draft length for its own drafts."""
    gain: float
    """Speed over that of plain decoding."""
    is_open: bool
    """Whether it pays for all that decode there."""
    prices: Prices


class Worth:
    """Compares what a request's drafts yield with what they cost."""

    def __init__(self, request: GenerationRequest, measurements: Measurements) -> None:
        self._proposer_name = request.speculation.proposer
        self._proposer = measurements.proposer(self._proposer_name)
        self._max_draft_tokens = request.num_speculative_tokens
        self._counts = measurements.counts
        self._is_on: bool | None = None
        """What was decided last by cost; None before."""

    def note(self, *, is_on: bool) -> None:
        """What was decided by cost: whoever drafts goes on for less than it began for."""
        self._is_on = is_on

    def prices(self, replica: ReplicaRecord) -> Prices:
        """Of all that decode there."""
        proposer = self._proposer
        answered_share = proposer.answers.value
        return replica.prices(self._proposer_name, self._max_draft_tokens, proposer.num_draft_tokens, answered_share)

    def offer(self, replica: ReplicaRecord, asking: Asking, allowed: int) -> Offer:
        """What drafting promises now. New prices are judged for all that decode there, which may open or close the
        replica's gate, and is counted.

        asking: of as many draft tokens as are allowed under the load.
        """
        prices = self.prices(replica)
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

    def pays(self, offer: Offer) -> bool:
        """Whether to take it up."""
        return offer.gain >= self._least_gain(offer.is_open)

    def seems_to_pay(self, replica: ReplicaRecord, asking: Asking) -> bool:
        """Whether drafts seem to pay there. That all agree is not asked, only whether they were found not to."""
        gain = self.prices(replica).best(asking)[1]
        rounds = replica.rounds(self._proposer_name)
        if rounds.gate.is_closed_under(replica.decode_load):
            return gain * rounds.level(replica.decode_load).achieved.ratio >= self._least_gain(is_open=False)
        return gain > 1

    def could_pay(self, replica: ReplicaRecord, num_draft_tokens: int) -> bool:
        """Whether drafts of as many tokens would pay there if all of them were accepted and nothing waited, less what
        was missing of promises."""
        gain = self.prices(replica).best(Asking([1.0] * num_draft_tokens), is_ideal=True)[1]
        return replica.rounds(self._proposer_name).level(replica.decode_load).achieved.ratio * gain > 1

    def reason_against(
        self, replica: ReplicaRecord, asking: Asking, prices: Prices
    ) -> tuple[Reason, tuple[TokenCounter, ...]]:
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
            self._counts.add_switch(is_open)
        return is_open

    def _least_gain(self, is_open: bool) -> float:
        if is_open:
            return _OWN_RETURN if self._is_on is False else _OWN_LOSS
        return _OWN_LEAVE if self._is_on else _OWN_GAIN
