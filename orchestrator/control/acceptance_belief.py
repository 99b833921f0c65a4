"""How likely drafts of one request are to be accepted: from its own rounds, and from what all requests know."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.control.window import RunningAverage
from pilotfish.speculation.statistics import DecayedAcceptance

_HALF_LIFE_ROUNDS = 64.0
_SHARED_WEIGHT_ROUNDS = 32.0
"""What all requests know of a position counts as much as this many rounds of one's own: requests differ less than the
luck of a few rounds makes it seem, and every mistake is a switch."""
_WEIGHT_AFTER_A_BREAK = 4.0
_ROUNDS_AFTER_A_BREAK = 24
"""Until the new belief has been learned, everything surprises."""
_SURPRISE_WEIGHT = 0.15
_MAX_SURPRISE = 3.0
"""Standard deviations of the recent rounds' average from what was expected, after which the text is another one."""


class AcceptanceBelief:
    """Steady in the noise of single rounds, and quick where the text changes for good."""

    def __init__(self, shared: DecayedAcceptance) -> None:
        """shared: learns from every request; this one adds to it."""
        self._shared = shared
        self._own = self._new(_SHARED_WEIGHT_ROUNDS)
        self._surprise = RunningAverage(weight=_SURPRISE_WEIGHT)
        self._num_rounds_to_learn = 0  # after a break
        self._told: Sequence[float] = ()
        """The last answer: what the next round was expected to be."""

    def probabilities(self, num_positions: int) -> Sequence[float]:
        """Pr(draft i accepted | all before it were)."""
        self._told = self._own.probabilities(num_positions, self._shared.probabilities(num_positions))
        return self._told

    def add(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Learn from one round."""
        if self._is_another_text(num_draft_tokens, num_accepted_tokens):
            self._own = self._new(_WEIGHT_AFTER_A_BREAK)
            self._surprise = RunningAverage(weight=_SURPRISE_WEIGHT)
            self._num_rounds_to_learn = _ROUNDS_AFTER_A_BREAK
        self._own.add(num_draft_tokens, num_accepted_tokens)
        self._shared.add(num_draft_tokens, num_accepted_tokens)
        self._told = ()

    def _is_another_text(self, num_draft_tokens: int, num_accepted_tokens: int) -> bool:
        """Whether the last rounds together are too far from what was believed to be chance."""
        if self._num_rounds_to_learn > 0:
            self._num_rounds_to_learn -= 1
            return False
        reached, mean, second_moment = 1.0, 0.0, 0.0
        told = self._told if len(self._told) >= num_draft_tokens else self.probabilities(num_draft_tokens)
        for position, probability in enumerate(told[:num_draft_tokens]):
            reached *= probability
            mean += reached
            second_moment += (2 * position + 1) * reached
        deviation = math.sqrt(max(second_moment - mean * mean, 0.05))
        self._surprise.add((num_accepted_tokens - mean) / deviation)
        average, num_values = self._surprise.value, self._surprise.num_values
        assert average is not None
        if num_values * _SURPRISE_WEIGHT < 1:
            return False
        return abs(average) > _MAX_SURPRISE * math.sqrt(_SURPRISE_WEIGHT / (2 - _SURPRISE_WEIGHT))

    @staticmethod
    def _new(shared_weight_rounds: float) -> DecayedAcceptance:
        return DecayedAcceptance(half_life_rounds=_HALF_LIFE_ROUNDS, prior_weight=shared_weight_rounds)
