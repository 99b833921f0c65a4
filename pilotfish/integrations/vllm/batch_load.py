"""What is known of each size of batch: what its steps take, plain and with drafts, and whether asking pauses there."""

from __future__ import annotations

import math
from collections.abc import Callable

from pilotfish.integrations.vllm.plain_steps import PlainSteps
from pilotfish.integrations.vllm.round_costs import RoundCosts
from pilotfish.integrations.vllm.token_cost import TokenCost

MIN_TRIAL_STEPS = 8
"""Of a trial, however many rows each step has."""
_KNOWN_STEPS = 16
"""With drafts, at one size of batch, before other sizes go by what their tokens cost."""
_EXACT_ROWS = 8
_SIZES_PER_DOUBLING = 4


class BatchLoad:
    """Of one size of batch."""

    __slots__ = (
        "costs",
        "num_plain",
        "num_tokens",
        "paused_for",
        "plain",
        "since_plain",
        "token_cost",
        "trials_left",
        "yield_at_pause",
    )

    def __init__(self, num_trials: int) -> None:
        """num_trials: steps that ask before others' costs are believed to be its own."""
        self.plain = PlainSteps()
        self.costs = RoundCosts()
        self.token_cost = TokenCost()
        self.num_tokens = 0
        """Asked for last."""
        self.num_plain = 0
        """Steps that were plain to measure them."""
        self.since_plain: int | None = None
        """Steps that could ask since one that did not. None: there was none yet."""
        self.trials_left = num_trials
        self.paused_for = 0
        """Steps."""
        self.yield_at_pause = 0.0
        """Accepted tokens a row, as was believed then."""


class BatchLoads:
    """All sizes that were seen, those of large batches in classes."""

    def __init__(self) -> None:
        self._loads: dict[int, BatchLoad] = {}

    def of(self, num_rows: int) -> BatchLoad:
        """That of so many rows; a new one asks first if none is known that is about as large."""
        size = _size(num_rows)
        if size not in self._loads:
            is_like_another = any(size <= 2 * other and other <= 2 * size for other in self._loads)
            self._loads[size] = BatchLoad(0 if is_like_another else MIN_TRIAL_STEPS)
        return self._loads[size]

    def nearest(self, num_rows: int, is_known: Callable[[BatchLoad], bool]) -> BatchLoad | None:
        """Of the sizes of batch that are known, the one closest to this; None where none is."""
        own = self.of(num_rows)
        if is_known(own):
            return own
        sizes = [size for size, load in self._loads.items() if is_known(load)]
        return self._loads[min(sizes, key=lambda size: abs(size - _size(num_rows)))] if sizes else None

    def plain(self, num_rows: int) -> PlainSteps:
        """Plain steps of so many rows, or those of the nearest size that is known."""
        return (self.nearest(num_rows, lambda load: load.plain.is_known) or self.of(num_rows)).plain

    def token_cost(self, num_rows: int) -> float:
        """What a draft token adds to a step, in plain ones: as measured, and before that as at another size."""
        own = self.of(num_rows)
        known = self.nearest(num_rows, lambda load: load is not own and load.token_cost.num_steps >= _KNOWN_STEPS)
        return own.token_cost.per_token(0.0 if known is None else known.token_cost.per_token(0.0))


def _size(num_rows: int) -> int:
    """Sizes of batch that are held for one."""
    if num_rows <= _EXACT_ROWS:
        return num_rows
    return _EXACT_ROWS + round(_SIZES_PER_DOUBLING * math.log2(num_rows / _EXACT_ROWS))
