"""How far the draft pool may draft ahead: as far as it has time, and no longer than it makes rounds shorter.

Where drafter and target share a machine, what is drafted during a verification can slow it down. So `auto`
measures: now and then a round goes without, and the faster way is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from orchestrator.control.round_costs import Average
from pilotfish.drafter_registry import DRAFTERS
from pilotfish.speculation.trees.fan_out import MAX_STEP_ROWS
from pilotfish.types import LoadReport, ModelInfo


@dataclass(slots=True)
class PredraftCounters:
    """What drafting ahead came to, over all requests of an orchestrator."""

    num_hits: int = 0
    """Rounds whose draft was there before it was asked for. `num_gone_on` is a part of them."""
    num_gone_on: int = 0
    """Hits whose round the target began by itself."""
    num_misses: int = 0
    """Rounds after drafting ahead whose draft had to be asked for all the same."""
    num_late_hits: int = 0
    """Misses whose prepared draft came while the draft was being asked for."""
    num_prepared_tokens: int = 0
    num_wasted_tokens: int = 0
    """Prepared tokens whose foreseen outcome did not come true."""
    num_stale_drafts: int = 0
    """Prepared drafts that came after their round was over."""
    hidden_s: float = 0.0
    """Drafting time that nobody waited for: for each hit, what asking took of late."""


class ClippedAverage:
    """An exponential moving average that one outlier hardly moves; None before the first value.

    Unlike a median it shows what a mixture of two costs: drafts that were ready and drafts that were not.
    """

    __slots__ = ("_deviation", "_weight", "num_values", "value")

    def __init__(self, weight: float = 0.1) -> None:
        """weight: the latest value's; about 2 / weight values count."""
        self._weight = weight
        self.num_values = 0
        self._deviation = 0.0
        self.value: float | None = None

    def add(self, value: float) -> None:
        self.num_values += 1
        if self.value is None:
            self.value = value
            self._deviation = abs(value) / 2
            return
        weight = max(self._weight, 1 / self.num_values)
        difference = value - self.value
        limit = 3 * self._deviation
        # The deviation learns from what is cut: a new level is believed after a few values.
        self._deviation += weight * (abs(difference) - self._deviation)
        self.value += weight * max(-limit, min(limit, difference))


_PROBE_INTERVAL_ROUNDS = 32
"""While drafting ahead pays, one round in so many goes without. At first every other one does."""
_FIRST_LOOK_ROUNDS, _LAST_LOOK_ROUNDS = 6, 48
"""While it does not pay, one round in so many looks whether it does by now: half as many after each look in vain."""
_MIN_SAMPLES = 16
"""Rounds of each way to measure before either can count as slower."""
_TOLERANCE = 1.02
"""A token that takes this much longer is within the noise."""


class Budget(NamedTuple):
    """What one round drafts ahead."""

    num_tokens: int
    is_sample: bool = False
    """Whether it says something to compare it with rounds that do otherwise: not where the load left no choice."""


NOTHING = Budget(0)


class PredraftPolicy:
    """Decides how far rounds draft ahead. Shared by the requests of one orchestrator."""

    def __init__(self, mode: Literal["auto", "off", "on"], max_tokens: int) -> None:
        """max_tokens: the most that one round of one request drafts ahead; 0 is off."""
        self._mode = mode if max_tokens else "off"
        self._max_tokens = max_tokens
        self._num_rounds = 0
        self._look_rounds = self._left_rounds = _FIRST_LOOK_ROUNDS
        """Rounds between two looks, and those that are left before the next."""
        self._round_s = {True: ClippedAverage(), False: ClippedAverage()}
        self._num_tokens = {True: Average(), False: Average()}
        self._ask_s = ClippedAverage()
        self.counters = PredraftCounters()

    @property
    def _is_paying(self) -> bool:
        """Whether a token takes no longer with drafting ahead than without, as far as that was measured.

        Without, a round gives more tokens: drafts may be trees, and a head's are made from newer states.
        """
        ahead_s, plain_s = self._round_s[True].value, self._round_s[False].value
        if ahead_s is None or plain_s is None or self._is_new:
            return True
        return ahead_s / self._num_tokens[True].value <= _TOLERANCE * plain_s / self._num_tokens[False].value

    @property
    def _is_new(self) -> bool:
        return min(each.num_values for each in self._round_s.values()) < _MIN_SAMPLES

    def budget(self, model: ModelInfo, load: LoadReport, num_draft_tokens: int) -> Budget:
        """What the replica may draft ahead in the round that begins.

        num_draft_tokens: the length of the round's own draft.
        """
        kind = DRAFTERS.get(model.proposer)  # None: an emulated one
        if self._mode == "off" or (kind is not None and not kind.drafts_ahead):
            return NOTHING
        if self._mode == "on":
            return Budget(self._max_tokens)
        # Several requests share a step.
        share = MAX_STEP_ROWS * num_draft_tokens // max(1, load.num_sequences_decoding)
        if share < num_draft_tokens or load.num_sequences_waiting or load.draining:
            return NOTHING
        self._num_rounds += 1
        if self._is_paying:
            self._look_rounds = self._left_rounds = _FIRST_LOOK_ROUNDS
            is_ahead = self._num_rounds % (2 if self._is_new else _PROBE_INTERVAL_ROUNDS) != 0
        else:
            is_ahead = self._looks_again()
        return Budget(min(self._max_tokens, share) if is_ahead else 0, is_sample=True)

    def _looks_again(self) -> bool:
        self._left_rounds -= 1
        if self._left_rounds:
            return False
        self._left_rounds = self._look_rounds = min(2 * self._look_rounds, _LAST_LOOK_ROUNDS)
        return True

    def add_round(self, elapsed_s: float, num_tokens: int, *, is_ahead: bool) -> None:
        """Record the time from one draft to the next, and the tokens that were committed between them.

        is_ahead: it was drafted ahead between them.
        """
        self._round_s[is_ahead].add(elapsed_s)
        self._num_tokens[is_ahead].add(num_tokens, 1.0)

    @property
    def ask_s(self) -> float:
        """What asking for a draft takes on average, in vain or not; 0 as long as nothing is known."""
        return self._ask_s.value or 0.0

    def add_ask(self, elapsed_s: float) -> None:
        """What it took to ask for a draft, or to give up."""
        self._ask_s.add(elapsed_s)

    def add_hit(self) -> None:
        """A draft need not be asked for."""
        self.counters.hidden_s += self.ask_s
