"""How far the draft pool may draft ahead: as far as it has time, and where a token takes no longer for it.

Where drafter and target share a machine, what is drafted during a verification can slow it down. So `auto`
measures: now and then a few rounds go the other way, and the faster way is kept.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

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


class TokenTime:
    """Seconds of a token over the last rounds; a round of more than four times their average counts as one of four.

    Of sums, as a token's time is that of a mixture: an average that cuts off what is rare says 1.25 times as much where
    one round in ten gives all the tokens.
    """

    __slots__ = ("_num_recent", "_num_tokens", "_seconds", "num_rounds")

    def __init__(self) -> None:
        self._seconds = self._num_tokens = self._num_recent = 0.0
        self.num_rounds = 0

    def add(self, elapsed_s: float, num_tokens: int) -> None:
        """A round gave num_tokens in elapsed_s."""
        if self.num_rounds:
            elapsed_s = min(elapsed_s, _MAX_ROUND * self._seconds / self._num_recent)
        self.num_rounds += 1
        self._seconds = _KEPT * self._seconds + elapsed_s
        self._num_tokens = _KEPT * self._num_tokens + num_tokens
        self._num_recent = _KEPT * self._num_recent + 1

    @property
    def value(self) -> float:
        """0 before the first round."""
        return self._seconds / self._num_tokens if self._num_tokens else 0.0


BLOCK_ROUNDS = 8
"""Rounds of a request between two choices. The first is not measured: it verifies what the other way prepared."""
_PROBE_SHARE = 1 / 32
"""Share of the choices that go the way that seems slower, so that it is measured again."""
_MIN_ROUNDS = 16
"""Rounds of each way to measure before either can count as slower."""
_TOLERANCE = 1.02
"""A token that takes this much longer is within the noise."""
_KEPT = 1 - 1 / 128
"""Weight of what was measured, a round later."""
_MAX_ROUND = 4.0
"""A round counts as at most so many of those before it."""


class PredraftPolicy:
    """Decides how far rounds draft ahead. Shared by the requests of one orchestrator."""

    def __init__(self, mode: Literal["auto", "off", "on"], max_tokens: int) -> None:
        """max_tokens: the most that one round of one request drafts ahead; 0 is off."""
        self.mode = mode
        self._max_tokens = max_tokens
        self._token_s = {True: TokenTime(), False: TokenTime()}
        """Time of a token in rounds that are drafted ahead (True), and in those that are not."""
        self._ask_s = ClippedAverage()
        self._chance = random.Random(0)
        self.counters = PredraftCounters()

    def chooses_ahead(self) -> bool:
        """Whether the next BLOCK_ROUNDS rounds of a request draft ahead: the faster way, and sometimes the other.

        Tokens are timed, not rounds: rounds that do not draft ahead give more, as drafts may be trees, and a head's
        are made from newer states.
        """
        ahead, plain = self._token_s[True], self._token_s[False]
        if min(ahead.num_rounds, plain.num_rounds) < _MIN_ROUNDS:
            return ahead.num_rounds <= plain.num_rounds
        is_paying = ahead.value <= _TOLERANCE * plain.value
        return is_paying != (self._chance.random() < _PROBE_SHARE)

    def budget(self, model: ModelInfo, load: LoadReport, num_draft_tokens: int) -> int:
        """The most tokens that the replica may draft ahead in the round that begins.

        num_draft_tokens: the length of the round's own draft.
        """
        kind = DRAFTERS.get(model.proposer)  # None: an emulated one
        if self.mode == "off" or (kind is not None and not kind.drafts_ahead):
            return 0
        if self.mode == "on":
            return self._max_tokens
        # Several requests share a step.
        share = MAX_STEP_ROWS * num_draft_tokens // max(1, load.num_sequences_decoding)
        if share < num_draft_tokens or load.num_sequences_waiting or load.draining:
            return 0
        return min(self._max_tokens, share)

    def add_round(self, elapsed_s: float, num_tokens: int, *, is_ahead: bool) -> None:
        """Record the time from one draft to the next, and the tokens that were committed between them.

        is_ahead: whether this round and the one before drafted ahead, or neither did.
        """
        self._token_s[is_ahead].add(elapsed_s, num_tokens)

    @property
    def ask_s(self) -> float:
        """What asking for a draft takes on average, in vain or not; 0 as long as nothing is known."""
        return self._ask_s.value or 0.0

    def add_ask(self, elapsed_s: float) -> None:
        """What it took to ask for a draft, or to give up."""
        self._ask_s.add(elapsed_s)

    def add_hit(self) -> None:
        """A draft was there before it was asked for."""
        self.counters.hidden_s += self.ask_s
