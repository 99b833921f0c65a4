"""What rounds of one proposer take on one target replica, under the loads there have been."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.control.gate import Gate
from orchestrator.control.probing import Probing
from orchestrator.control.propose_time import ProposeTime
from orchestrator.control.round_ratio import RoundRatio
from orchestrator.control.step_costs import StepCosts
from orchestrator.control.vain_asks import ASSUMED_RUN_TOKENS, VainAsks
from orchestrator.control.window import MedianWindow, RunningAverage
from pilotfish.profiles import HardwareProfile
from pilotfish.speculation.cost import best_gain
from pilotfish.types import LoadReport

_MIN_STEPS = 8
"""Of which the share is known: fewer may be those of one half."""
_SHARE_WEIGHT = 0.01
"""Of the latest step: it wanders as sequences fall into groups and out of them, and what rounds take follows later."""
_PRICES_PER_STEP = 4
_MAX_TOLD_ALONE = 8
"""Finding prices takes a tenth of a millisecond, for which a round waits: so often while every sequence decides once,
and once in so many decisions of a few sequences, is enough."""
_SAMPLES_PER_STEP = 3
"""The sequences of one step all measure the same: as many of them are believed."""
_FIRST_RETRY_TOKENS = 512
_MAX_RETRY_TOKENS = 64 * _FIRST_RETRY_TOKENS
"""Plain tokens of each sequence after which rounds that once took too long are tried again; doubled each time."""


class LoadLevel:
    """Rounds while about so many sequences decode."""

    def __init__(self) -> None:
        self._share = RunningAverage(weight=_SHARE_WEIGHT)
        self._assumed_share: float | None = None
        self._ratio = RoundRatio()
        self.propose = ProposeTime()
        self.vain_asks = VainAsks()
        self.num_draft_tokens = 0
        """What was best for drafts as good as all requests' are; 0: not known yet."""
        self._num_proposals = self._num_rounds = self._num_vain_asks = 0
        self._num_plain_tokens = 0
        self._retry_tokens = _FIRST_RETRY_TOKENS

    @property
    def is_measured(self) -> bool:
        """Whether there were enough rounds to tell what they take."""
        return self._ratio.is_known or self._share.num_values >= _MIN_STEPS

    @property
    def share(self) -> float | None:
        """Sequences in a step over all that decode: those that draft meanwhile miss it. Sequences that start a round
        while others are verified stay apart from them, so that two halves take turns: then it is a half. None as long
        as too little is known."""
        return self._share.value if self._share.num_values >= _MIN_STEPS else self._assumed_share

    def corrections(self, max_draft_tokens: int) -> Sequence[float] | None:
        """Element K: time of a round of K draft tokens over what is expected of it, K up to max_draft_tokens; None as
        long as too little is known."""
        factors = self._ratio.factors(max_draft_tokens)
        if factors is not None or self._assumed_share is None:
            return factors
        return [self._assumed_share] * (max_draft_tokens + 1)  # which is 1.0: the best is assumed

    def add_share(self, share: float) -> None:
        self._share.add(share)

    def takes_proposal(self, num_sequences: int) -> bool:
        """Count a proposal; whether it is one of those that are believed: one moment in which all drafts are late must
        not count once for each sequence."""
        self._num_proposals += 1
        spacing = one_in(num_sequences)
        return self._num_proposals % spacing == 1 % spacing

    def takes_vain_ask(self, num_sequences: int) -> bool:
        """As takes_proposal."""
        self._num_vain_asks += 1
        return self._num_vain_asks % one_in(num_sequences) == 0

    def takes_round(self, num_sequences: int) -> bool:
        """Count a round; whether it is one of those that are believed."""
        if self._share.num_values < _MIN_STEPS:
            return False  # a correction makes sense only with what it corrects
        self._num_rounds += 1
        return self._num_rounds % one_in(num_sequences) == 0

    def add_round(self, ratio: float, num_draft_tokens: int, num_sequences: int) -> None:
        """ratio: time of the round over what was expected."""
        self._ratio.add(ratio, num_draft_tokens, self._num_rounds, num_sequences)

    def count_plain_tokens(self, num_tokens: int, num_sequences: int) -> None:
        """Tokens that were decoded plainly only because of what is recorded here: at last the best is assumed, but for
        half of what is known of draft lengths and of asking in vain."""
        self._num_plain_tokens += num_tokens
        if self._num_plain_tokens >= self._retry_tokens * num_sequences:
            self._num_plain_tokens = 0
            self._retry_tokens = min(2 * self._retry_tokens, _MAX_RETRY_TOKENS)
            self._share, self._assumed_share = RunningAverage(weight=_SHARE_WEIGHT), 1.0
            self._ratio.hope()
            self.vain_asks.hope()
            self.propose = ProposeTime()


@dataclass(frozen=True, slots=True)
class Asking:
    """What is expected of a drafter that is asked."""

    probabilities: Sequence[float]
    """Of each draft token to be accepted, given that those before it were."""
    answered_share: float = 1.0
    """Of what it is asked: a lookup may find nothing."""
    run_tokens: float = 1.0
    """Decoded at least before it is asked again where it has no answer."""


@dataclass(frozen=True)
class Prices:
    """What the next tokens cost if all sequences that decode on the replica do the same, and have answers to the same
    share of what they ask. Seconds."""

    plain_s: float
    """One plain decode step."""
    rounds_s: Sequence[float]
    """Element K: proposing and verifying K tokens; element 0 is plain_s."""
    ideal_s: Callable[[int], float]
    """Of K tokens: if verifications waited for nothing but their step and proposals took what they take a lone
    sequence."""
    steps_s: Sequence[float]
    """Element K: a token of a plain run beside rounds of K tokens."""
    vain_s: float
    """What is lost where the drafter has no answer, besides;"""
    ideal_vain_s: float
    """at best; and"""
    vain_run_tokens: float
    """how far sequences decode plainly, then, before it is asked again."""

    def best(
        self, asking: Asking, preferred: int = 0, margin: float = 0.0, *, is_ideal: bool = False
    ) -> tuple[int, float]:
        """The best draft length and its speed over that of plain decoding, as best_gain says.

        is_ideal: at ideal prices.
        """
        rounds_s = self.ideal_rounds_s if is_ideal else self.rounds_s
        vain_s = self.ideal_vain_s if is_ideal else self.vain_s
        if asking.answered_share >= 1:
            return best_gain(asking.probabilities, self.plain_s, rounds_s, preferred, margin)
        num_vain_asks = 1 / asking.answered_share - 1  # for one that is answered
        run_tokens = max(self.vain_run_tokens, asking.run_tokens)
        between_s = [num_vain_asks * (run_tokens * step_s + vain_s) for step_s in self.steps_s]
        between_tokens = num_vain_asks * run_tokens
        return best_gain(asking.probabilities, self.plain_s, rounds_s, preferred, margin, between_tokens, between_s)

    @cached_property
    def ideal_rounds_s(self) -> Sequence[float]:
        """As rounds_s, but ideal ones: only looked at where speculation is off, and decisions are rare."""
        ideal_s = [min(round_s, self.ideal_s(k)) for k, round_s in enumerate(self.rounds_s[1:], start=1)]
        return [self.plain_s, *ideal_s]


@dataclass(slots=True)
class _ToldPrices:
    prices: Prices
    num_sequences: int
    number: int
    """Of the decision that they were found for;"""
    max_decisions: int
    """for so many decisions they are kept."""


class RoundTimes:
    """Learns from rounds; expects of a load that was never met what the next lower one taught."""

    def __init__(self, costs: StepCosts, profile: HardwareProfile | None) -> None:
        """profile: of the draft pool's costs; None: they are measured."""
        self.gate = Gate()
        self.probing = Probing()
        self.runs: dict[int, MedianWindow] = defaultdict(MedianWindow)
        """Seconds of a token in runs that the target drafts for itself, by the decoding sequences' bit length."""
        self.answered_share = 1.0
        """Of what all requests ask, as known when prices were found last."""
        self._costs = costs
        self._profile = profile
        self._levels: dict[int, LoadLevel] = {}
        self._told: dict[int, _ToldPrices] = {}
        """By the most draft tokens that a request allows."""
        self._num_decisions = 0

    def level(self, num_sequences: int) -> LoadLevel:
        """The record of this load, made when it is first met."""
        size = _size(num_sequences)
        if size not in self._levels:
            self._levels[size] = LoadLevel()
        return self._levels[size]

    def add_step(self, load: LoadReport, num_sequences: int) -> None:
        """A step while (nearly) all of num_sequences speculate."""
        self.level(num_sequences).add_share(min(1.0, load.num_sequences_decoding / num_sequences))

    def add_propose(self, num_tokens: int, elapsed_s: float, compute_s: float, num_speculating: int) -> None:
        """compute_s: as the drafter says; 0: it says nothing."""
        if compute_s <= 0:
            profile = self._profile
            compute_s = elapsed_s / 2 if profile is None else profile.propose_s(num_speculating, num_tokens)
        level = self.level(num_speculating)
        if level.takes_proposal(num_speculating):
            level.propose.add(num_tokens, elapsed_s, compute_s)

    def add_vain_ask(self, num_run_tokens: int, lost_s: float, num_sequences: int) -> None:
        """The drafter had no answer; lost_s: what asking and decoding num_run_tokens took over as many steps."""
        level = self.level(num_sequences)
        if level.takes_vain_ask(num_sequences):
            level.vain_asks.add(num_run_tokens, lost_s)

    def add_round(self, elapsed_s: float, num_draft_tokens: int, num_rows: float, num_sequences: int) -> None:
        """A round of num_draft_tokens while (nearly) all of num_sequences speculate, with num_rows rows on average."""
        level = self.level(num_sequences)
        if not level.takes_round(num_sequences):
            return
        propose_s = self._propose_s(num_sequences)(num_draft_tokens)
        expected_s = self._expected_s(num_rows, propose_s, num_sequences, self._share(num_sequences))
        if expected_s > 0:
            level.add_round(elapsed_s / expected_s, num_draft_tokens, num_sequences)

    def prices(
        self,
        num_sequences: int,
        max_draft_tokens: int,
        num_nodes: Callable[[int], int],
        plain_ratio: float,
        answered_share: float = 1.0,
    ) -> Prices:
        """Found for some of the sequences; the others are told the same object.

        num_nodes: draft tokens of a draft of that depth, which of a tree are more.
        plain_ratio: time of a token of a decode run over that of a step.
        """
        self._num_decisions = number = self._num_decisions + 1
        told = self._told.get(max_draft_tokens)
        is_new = told is None or told.num_sequences != num_sequences
        if told is None or is_new or number - told.number >= told.max_decisions:
            # The first rounds under a load teach most.
            longest = max(_MAX_TOLD_ALONE, num_sequences // _PRICES_PER_STEP)
            max_decisions = 1 if told is None or is_new else min(2 * told.max_decisions, longest)
            self.answered_share = answered_share
            prices = self._new_prices(num_sequences, max_draft_tokens, num_nodes, plain_ratio)
            self._told[max_draft_tokens] = told = _ToldPrices(prices, num_sequences, number, max_decisions)
        return told.prices

    def _new_prices(
        self,
        num_sequences: int,
        max_draft_tokens: int,
        num_nodes: Callable[[int], int],
        plain_ratio: float,
    ) -> Prices:
        step_s, propose_s, lone_propose_s = self._costs.step_s, self._propose_s(num_sequences), self._propose_s(1)
        share = self._share(num_sequences)
        corrections = self._corrections(max_draft_tokens, num_sequences) or [plain_ratio] * (max_draft_tokens + 1)
        vain_asks = self._vain_asks(num_sequences)
        run_tokens = ASSUMED_RUN_TOKENS if vain_asks is None else vain_asks.run_tokens
        # Of the steps of a sequence.
        drafted_share = self.answered_share / (self.answered_share + (1 - self.answered_share) * run_tokens)
        rounds_s = [plain_ratio * step_s(num_sequences, num_sequences)]
        steps_s = rounds_s[:]
        for depth in range(1, max_draft_tokens + 1):
            num_rows = 1 + drafted_share * num_nodes(depth)
            expected_s = self._expected_s(num_rows, propose_s(depth), num_sequences, share)
            rounds_s.append(corrections[depth] * expected_s)
            steps_s.append(plain_ratio * step_s(num_sequences, round(num_sequences * num_rows)))

        def ideal_s(depth: int) -> float:
            return steps_s[depth] + lone_propose_s(depth)

        ideal_vain_s = lone_propose_s(1)
        vain_s = ideal_vain_s if vain_asks is None else vain_asks.lost_s
        return Prices(rounds_s[0], rounds_s, ideal_s, steps_s, vain_s, min(vain_s, ideal_vain_s), run_tokens)

    def _expected_s(self, num_rows: float, propose_s: float, num_sequences: int, share: float) -> float:
        """Proposing and verifying if every sequence computes num_rows rows, before it is corrected.

        share: of them in a step.
        """
        step_s = self._costs.step_s(max(1, round(share * num_sequences)), round(share * num_sequences * num_rows))
        # While some draft the target verifies for others: either hides the other.
        return max(step_s / share, step_s + propose_s)

    def _share(self, num_sequences: int) -> float:
        # A lone sequence is always in its step: it says nothing of others.
        for size in range(_size(num_sequences), 0 if num_sequences > 1 else -1, -1):
            level = self._levels.get(size)
            if level is not None and level.share is not None:
                return level.share
        return 1.0

    def _corrections(self, max_draft_tokens: int, num_sequences: int) -> Sequence[float] | None:
        for size in range(_size(num_sequences), -1, -1):
            level = self._levels.get(size)
            if level is not None and (corrections := level.corrections(max_draft_tokens)) is not None:
                return corrections
        return None

    def _vain_asks(self, num_sequences: int) -> VainAsks | None:
        for size in range(_size(num_sequences), -1, -1):
            level = self._levels.get(size)
            if level is not None and level.vain_asks.is_known:
                return level.vain_asks
        return None

    def _propose_s(self, num_sequences: int) -> Callable[[int], float]:
        for size in range(_size(num_sequences), -1, -1):
            level = self._levels.get(size)
            if level is not None and level.propose.is_known:
                return level.propose.seconds
        profile = self._profile
        if profile is None:
            return lambda _num_tokens: 0.0  # so that it gets measured
        return lambda num_tokens: profile.propose_s(num_sequences, num_tokens)


def one_in(num_sequences: int) -> int:
    """Of so many samples one is believed, where so many sequences measure the same steps."""
    return 1 + num_sequences // _SAMPLES_PER_STEP


def _size(num_sequences: int) -> int:
    """The level of a load: powers of two, which people like to set, lie in the middle of theirs, so that a request
    that ends before the next one begins makes no other load of it."""
    return round(math.log2(num_sequences))
