"""What drafts cost a target that drafts for itself: how far to draft, and how far to branch.

A step of T seconds, drafts included, yields Y tokens. Whatever makes it t seconds longer pays if it adds more than
t * Y / T tokens. A draft token adds as much as the target is likely to come to it; it takes its row of the verification
and its share of the drafter's round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter

_DECAY = 0.98
"""Factor on what was measured, each step: about the last fifty steps count."""
_NEXT = 0.7
"""Assumed conditional acceptance: 0.7."""
_KNOTS = 64
"""Sizes of a step whose prices are looked up; those between are interpolated."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What pays in the next step. Confidences are probabilities that the target comes to a draft token."""

    round: float = 0.2
    """The least confidence in the newest tokens of one sequence, for another round of the drafter."""
    node: float = 0.02
    """The least confidence in a node of a tree, for its verification."""
    row_prices: tuple[float, ...] = ()
    """Tokens that go by while the step is longer for n draft tokens: element n. Empty: not known yet."""
    round_price: float = 0.0
    """Tokens that go by during a round of the drafter."""

    def least(self, drafted: Sequence[float], newest: Sequence[float]) -> float:
        """The least confidence in a chain's newest token with which it goes on; above 1: another round does not pay.

        drafted: of all tokens so far. newest: of those that the round would continue.
        """
        if not self.row_prices:
            return self.round
        newest = sorted(newest, reverse=True)
        following = [_NEXT * confidence for confidence in newest]
        ranked = sorted([*drafted, *following], reverse=True)
        num_rows, gain = self.best(ranked)
        if gain - self.best(sorted(drafted, reverse=True))[1] <= self.round_price:
            return math.inf
        num_verified = sum(confidence >= ranked[num_rows - 1] for confidence in following)
        return newest[num_verified - 1] if num_verified else math.inf

    def best(self, confidences: Sequence[float], num_others: int = 0) -> tuple[int, float]:
        """(how many draft tokens of all sequences to verify, tokens gained by it). confidences: the greatest first.

        num_others: draft tokens that are verified in any case.
        """
        prices = self.row_prices[num_others:]
        gains = [
            0.0,
            *(gain - price + prices[0] for gain, price in zip(accumulate(confidences), prices[1:], strict=False)),
        ]
        return max(enumerate(gains), key=itemgetter(1))


DEFAULT_THRESHOLDS = Thresholds()
PATIENT = Thresholds(round=0.0, node=0.0)
"""Drafts go on to their full length, however little the drafter trusts them."""


class DraftCosts:
    """Moving sums over steps. Pure: time is an argument."""

    def __init__(self) -> None:
        self._num_tokens = self._time_s = self._num_rounds = self._draft_s = 0.0

    def add(self, num_tokens: int, step_s: float, num_rounds: int, draft_s: float) -> None:
        """A step that committed num_tokens, without the time of prefills, and the drafts that were made after it."""
        self._num_tokens = _DECAY * self._num_tokens + num_tokens
        self._time_s = _DECAY * self._time_s + step_s + draft_s
        if num_rounds:  # else the time is of lookups, and of what drafters keep
            self._num_rounds = _DECAY * self._num_rounds + num_rounds
            self._draft_s = _DECAY * self._draft_s + draft_s

    def thresholds(
        self, step_s: Callable[[float], float], num_sequences: int, num_draft_tokens: int, most: int
    ) -> Thresholds:
        """Thresholds for a step of so many sequences; the defaults before the first one.

        step_s: seconds of a step by its rows. num_draft_tokens: those of all chains together. most: those of all trees,
        if more.
        """
        if self._time_s == 0:
            return DEFAULT_THRESHOLDS
        tokens_per_s = self._num_tokens / self._time_s
        num_rows = max(num_draft_tokens, most)
        stride = -(-num_rows // _KNOTS)
        knots = [tokens_per_s * step_s(num_sequences + count) for count in range(0, num_rows + stride, stride)]
        # No step takes longer than one of more rows: where the table says so, it is noise.
        knots = list(accumulate(reversed(knots), min))[::-1]
        prices = [
            before + (after - before) * place / stride - knots[0]
            for before, after in pairwise(knots)
            for place in range(stride)
        ]
        prices.append(knots[-1] - knots[0])
        row_price = prices[num_draft_tokens] / num_draft_tokens
        round_price = tokens_per_s * self._draft_s / self._num_rounds if self._num_rounds else 0.0
        return Thresholds(
            round=min(max(round_price / num_sequences + row_price, 0.02), 0.9),
            node=min(max(row_price, 0.005), 0.5),
            row_prices=tuple(prices),
            round_price=round_price,
        )
