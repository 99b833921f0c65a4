"""What steps take that drafts were asked for, over plain ones: of one size of batch, by the tokens asked for."""

from __future__ import annotations

from pilotfish.averages import ClippedAverage
from pilotfish.integrations.vllm.draft_yield import DraftYield

_WEIGHT = 0.02
_PRIOR_STEPS = 4
"""What another length tells counts as much as so many steps of this one."""
_FADING = 0.98
"""Of what a length has told, with every step of another one: it is tried again after some hundred."""


class RoundCosts:
    """Pure."""

    def __init__(self) -> None:
        self._ratios: dict[int, ClippedAverage] = {}
        self._weights: dict[int, float] = {}
        """Steps of each length, those of long ago fading."""

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._ratios)

    def add(self, num_requested: int, ratio: float) -> None:
        """A step that asked for so many tokens a row took `ratio` of a plain one, the wait for them included."""
        self._ratios.setdefault(num_requested, ClippedAverage(_WEIGHT)).add(ratio)
        self._weights = {length: weight * _FADING for length, weight in self._weights.items()}
        self._weights[num_requested] = self._weights.get(num_requested, 0.0) + 1

    def ratio(self, num_requested: int, drafts: DraftYield) -> float:
        """What such a step takes, in plain ones; 1 before anything was measured: that is found out soon enough."""
        own = self._ratios.get(num_requested)
        others = [length for length in self._ratios if length != num_requested]
        if not others:
            return 1.0 if own is None or own.value is None else own.value
        nearest = min(others, key=lambda length: abs(length - num_requested))
        guess = self._scaled(nearest, num_requested, drafts)
        if own is None or own.value is None:
            return guess
        weight = self._weights[num_requested] / (self._weights[num_requested] + _PRIOR_STEPS)
        return weight * own.value + (1 - weight) * guess

    def _scaled(self, measured: int, num_requested: int, drafts: DraftYield) -> float:
        """What verifying adds grows with the tokens that are verified; a step that took less than a plain one was
        luck, which does not grow."""
        value, num_drafted = self._ratios[measured].value, drafts.num_drafted(measured)
        assert value is not None
        share = drafts.num_drafted(num_requested) / num_drafted if num_drafted else 1.0
        return 1 + max(0.0, value - 1) * share
