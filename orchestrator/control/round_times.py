"""What rounds of one proposer take on one target replica, under the loads there have been."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.control.gate import Gate
from orchestrator.control.load_level import LoadLevel
from orchestrator.control.prices import Prices
from orchestrator.control.probing import Probing
from orchestrator.control.step_costs import StepCosts
from orchestrator.control.vain_asks import ASSUMED_RUN_TOKENS, VainAsks
from orchestrator.control.window import MedianWindow
from pilotfish.profiles import HardwareProfile
from pilotfish.types import LoadReport

_PRICES_PER_STEP = 4
_MAX_TOLD_ALONE = 8
"""Finding prices takes a tenth of a millisecond, for which a round waits: so often while every sequence decides once,
and once in so many decisions of a few sequences, is enough."""


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


def _size(num_sequences: int) -> int:
    """The level of a load: powers of two, which people like to set, lie in the middle of theirs, so that a request
    that ends before the next one begins makes no other load of it."""
    return round(math.log2(num_sequences))
