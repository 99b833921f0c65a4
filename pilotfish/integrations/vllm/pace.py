"""How many draft tokens a step asks for, and how long it may wait for them: what pays, as measured.

A step of vLLM takes longer with drafts, by the wait for them and by what verifying them computes, and yields more
tokens. At one sequence verifying is nearly free; at many it is not, and shorter drafts pay, or none.

Pure: time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.control.window import ClippedAverage, MedianWindow
from pilotfish.integrations.vllm.draft_yield import DraftYield
from pilotfish.integrations.vllm.loss_budget import LossBudget
from pilotfish.integrations.vllm.round_costs import RoundCosts

_FIRST_DEADLINE_S = 0.02
"""Before a decode step was measured."""
_MIN_ROWS = 64
"""Rows that were asked for before it is judged what that yields."""
_MARGIN = 0.01
"""Asking stays as it is within this much of a gain."""
_TRIAL_ROWS, _MIN_TRIAL_STEPS = 64, 8
"""Asked for after a pause, whatever is believed: a lookup hits in bursts, and fewer would mostly lie between them."""
_TRIALS_LOSS = 0.01
"""Of all time, that trials may lose: the more each step of them loses, the longer the pause before the next."""
_MIN_PAUSE_STEPS, _MAX_PAUSE_STEPS = 64, 4096
_PLAIN_PROBE_INTERVAL_STEPS = 128
"""While drafts are asked for, one step in so many goes without if no step did by itself: what plain steps take changes
with the length of the texts."""
_MAX_RATIO = 4.0
"""A step that took longer than so many plain ones, or waited for so many deadlines, met with something else."""
_PLAIN_WEIGHT = 0.1
_EXACT_ROWS = 8
_SIZES_PER_DOUBLING = 4


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step of vLLM that did nothing but decode and verify."""

    step_s: float
    """From one call of the proposer to the next, the wait for drafts in the first included."""
    num_requested_tokens: int
    """Draft tokens that each row was asked for; 0: none were."""
    drafts: tuple[tuple[int, int], ...]
    """Of each row: the tokens drafted, and those accepted."""

    @property
    def num_rows(self) -> int:
        return len(self.drafts)


class _Load:
    """Of one size of batch."""

    __slots__ = ("costs", "num_tokens", "paused_for", "plain_average_s", "plain_s", "since_plain", "trials_left")

    def __init__(self) -> None:
        self.plain_s = MedianWindow()
        """Steps that asked for nothing."""
        self.plain_average_s = ClippedAverage(_PLAIN_WEIGHT)
        """Of the same: what others are held against as an average, for on a busy machine a median is less than that."""
        self.costs = RoundCosts()
        self.num_tokens = 0
        """Asked for last."""
        self.since_plain = _PLAIN_PROBE_INTERVAL_STEPS  # the first step of a size is a plain one
        self.trials_left = 0
        self.paused_for = 0


class Pace:
    """Told of every step; one engine's."""

    def __init__(self, deadline_s: float, max_tokens: int, *, is_measuring: bool) -> None:
        """deadline_s: 0 takes a measured decode step. max_tokens: that vLLM takes as a draft.

        is_measuring: ask only where it pays.
        """
        self._deadline_s = deadline_s
        self._is_measuring = is_measuring
        self._max_tokens = max_tokens
        self._lengths = sorted({max(min(2, max_tokens), max_tokens // part) for part in (1, 2, 4)}, reverse=True)
        self._loads: dict[int, _Load] = {}
        self._yield = DraftYield(max_tokens)
        self._budget = LossBudget()
        self.num_pauses = 0
        """Times that asking was found not to pay."""

    def deadline_s(self, num_rows: int) -> float:
        """How long the step may wait that has so many rows."""
        return self._deadline_s or self._plain_step_s(num_rows) or _FIRST_DEADLINE_S

    def advance(self, now_s: float, num_rows: int) -> None:
        """It is now_s, and the batch has so many rows."""
        self._budget.advance(now_s, self._plain_step_s(num_rows) or _FIRST_DEADLINE_S)

    def num_draft_tokens(self, num_rows: int) -> int:
        """Tokens to ask for after the step that has so many rows; 0: none. Called once for each that could."""
        if not self._is_measuring:
            return self._max_tokens
        load = self._load(num_rows)
        if load.paused_for > 0:
            load.paused_for -= 1
            load.trials_left = _trial_steps(num_rows)
            return 0
        if self._budget.is_spent:
            return 0
        load.since_plain += 1
        if load.since_plain > _PLAIN_PROBE_INTERVAL_STEPS:
            # One step, whether or not it can be measured: where prompts are read all the time few can.
            load.since_plain = 0
            return 0
        return self._paying(load, num_rows)

    def add_step(self, outcome: StepOutcome) -> None:
        """Learn from a step."""
        load = self._load(outcome.num_rows)
        if outcome.num_requested_tokens == 0:
            load.plain_s.add(outcome.step_s)
            load.plain_average_s.add(outcome.step_s)
            load.since_plain = 0
            return
        self._yield.add(outcome.num_requested_tokens, outcome.drafts)
        known = self._nearest(outcome.num_rows, lambda load: load.plain_average_s.value is not None)
        plain_s = None if known is None else known.plain_average_s.value
        if not plain_s:
            return
        ratio = min(outcome.step_s / plain_s, _MAX_RATIO)
        load.costs.add(outcome.num_requested_tokens, ratio)
        num_tokens = 1 + sum(num_accepted for _, num_accepted in outcome.drafts) / outcome.num_rows
        self._budget.spend((ratio - num_tokens) * plain_s)

    def add_vain_wait(self, wait_s: float, num_rows: int) -> None:
        """A step of so many rows has waited for drafts that did not come."""
        # A process that was stopped for a minute meanwhile would not ask for the better part of an hour.
        self._budget.spend(min(wait_s, _MAX_RATIO * self.deadline_s(num_rows)))

    def _paying(self, load: _Load, num_rows: int) -> int:
        """The length that pays best. 0: none does, and asking pauses."""
        if self._yield.num_rows < _MIN_ROWS:
            return self._max_tokens
        gains = {length: self._gain(num_rows, length) for length in self._lengths}
        best = max(gains, key=lambda length: gains[length])
        if gains[best] > gains.get(load.num_tokens, 0.0) + _MARGIN:
            load.num_tokens = best
        gain = gains[load.num_tokens]
        if gain > 1 - _MARGIN:
            return load.num_tokens
        if load.trials_left > 0:
            load.trials_left -= 1
            return load.num_tokens
        pause_steps = round(_trial_steps(num_rows) * (1 - gain) / _TRIALS_LOSS)
        load.paused_for = min(max(pause_steps, _MIN_PAUSE_STEPS), _MAX_PAUSE_STEPS)
        self.num_pauses += 1
        return 0

    def _gain(self, num_rows: int, length: int) -> float:
        """Expected speed with drafts of this length over that without."""
        costs = self._nearest(num_rows, lambda load: load.costs.is_known)
        ratio = 1.0 if costs is None else costs.costs.ratio(length, self._yield)
        return (1 + self._yield.num_accepted(length)) / ratio

    def _plain_step_s(self, num_rows: int) -> float:
        """0: not known."""
        load = self._nearest(num_rows, lambda load: load.plain_s.value is not None)
        return 0.0 if load is None else load.plain_s.value or 0.0

    def _nearest(self, num_rows: int, is_known: Callable[[_Load], bool]) -> _Load | None:
        """Of the sizes of batch that are known, the one closest to this; None where none is."""
        own = self._load(num_rows)
        if is_known(own):
            return own
        sizes = [size for size, load in self._loads.items() if is_known(load)]
        return self._loads[min(sizes, key=lambda size: abs(size - _size(num_rows)))] if sizes else None

    def _load(self, num_rows: int) -> _Load:
        return self._loads.setdefault(_size(num_rows), _Load())


def _trial_steps(num_rows: int) -> int:
    return max(_MIN_TRIAL_STEPS, _TRIAL_ROWS // num_rows)


def _size(num_rows: int) -> int:
    """Sizes of batch that are held for one."""
    if num_rows <= _EXACT_ROWS:
        return num_rows
    return _EXACT_ROWS + round(_SIZES_PER_DOUBLING * math.log2(num_rows / _EXACT_ROWS))
