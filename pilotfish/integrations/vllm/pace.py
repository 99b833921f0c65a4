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
from pilotfish.integrations.vllm.shadow_schedule import ShadowSchedule
from pilotfish.integrations.vllm.token_cost import TokenCost

_FIRST_DEADLINE_S = 0.02
"""Before a decode step was measured."""
_MIN_ROWS = 64
"""Rows that were asked for before it is judged what that yields."""
_MARGIN = 0.01
"""Asking stays as it is within this much of a gain."""
_TRIAL_ROWS, _MIN_TRIAL_STEPS = 16, 8
"""Asked for after a pause, whatever is believed: a lookup hits in bursts, and fewer would mostly lie between them."""
_TRIALS_LOSS = 0.01
"""Of all time, that trials may lose: the more each step of them loses, the longer the pause before the next."""
_MIN_PAUSE_STEPS, _MAX_PAUSE_STEPS = 64, 4096
_PLAIN_PROBE_INTERVAL_STEPS = 128
_MIN_PLAIN_PROBE_INTERVAL_STEPS = 4
"""While drafts are asked for, one step in so many goes without if no step did by itself: what plain steps take changes
with the length of the texts, and with whatever else the machine does. The first ones come soon one after another, and
those after them the more often the less drafts win: there they cost little, and a wrong belief much."""
_CLOSE_INTERVAL_STEPS = 32
_CLEAR_GAIN = 1.5
"""From here on plain steps may be rare."""
_MAX_RATIO = 4.0
"""A step that took longer than so many plain ones, or waited for so many deadlines, met with something else."""
_PLAIN_WEIGHT = 0.25
_NEWS = 0.04
"""Accepted tokens a row that shadows show more than was known when a pause began: they end it. The costs that were
believed then are measured anew."""
_DOUBT = 0.05
"""They may be wrong by so much."""
_KNOWN_STEPS = 16
"""With drafts, at one size of batch, before other sizes go by what their tokens cost."""
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

    __slots__ = (
        "costs",
        "num_plain",
        "num_tokens",
        "paused_for",
        "plain_average_s",
        "plain_s",
        "since_plain",
        "token_cost",
        "trials_left",
        "yield_at_pause",
    )

    def __init__(self, num_trials: int) -> None:
        """num_trials: steps that ask before others' costs are believed to be its own."""
        self.plain_s = MedianWindow()
        """Steps that asked for nothing."""
        self.plain_average_s = ClippedAverage(_PLAIN_WEIGHT)
        """Of the same: what others are held against as an average, for on a busy machine a median is less than that."""
        self.costs = RoundCosts()
        self.token_cost = TokenCost()
        self.num_tokens = 0
        """Asked for last."""
        self.num_plain = 0
        """Of them, steps that were plain to measure them."""
        self.since_plain = _PLAIN_PROBE_INTERVAL_STEPS + 1  # the first step of a size is a plain one
        self.trials_left = num_trials
        self.paused_for = 0
        self.yield_at_pause = 0.0
        """Accepted tokens a row, as was believed then."""


class Pace:
    """Told of every step; one engine's."""

    def __init__(self, deadline_s: float, max_tokens: int, *, is_measuring: bool) -> None:
        """deadline_s: 0 takes a measured decode step. max_tokens: that vLLM takes as a draft.

        is_measuring: ask only where it pays.
        """
        self._deadline_s = deadline_s
        self._is_measuring = is_measuring
        self.max_tokens = max_tokens
        self._lengths = sorted({max(min(2, max_tokens), max_tokens // part) for part in (1, 2, 4)}, reverse=True)
        self._loads: dict[int, _Load] = {}
        self._yield = DraftYield(max_tokens)
        self._shadows = ShadowSchedule()
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
            return self.max_tokens
        load = self._load(num_rows)
        if load.paused_for > 0:
            load.trials_left = _trial_steps(num_rows)
            load.paused_for = 0 if self._is_news(load, num_rows) else load.paused_for - 1
            if load.paused_for > 0:
                return 0
        if self._budget.is_spent:
            return 0
        load.since_plain += 1
        if load.since_plain > self._plain_interval(load, num_rows):
            # One step, whether or not it can be measured: where prompts are read all the time few can.
            load.since_plain = 0
            load.num_plain += 1
            return 0
        return self._paying(load, num_rows)

    def wants_shadow(self, num_rows: int) -> bool:
        """Whether a step of so many rows, which does not ask, should ask all the same, to know what that would yield:
        nobody waits. Called once for each that could."""
        return self._is_measuring and self._shadows.is_due(num_rows)

    def token_cost(self, num_rows: int) -> float:
        """What a draft token more adds to the step of so many rows, in plain ones. 0: nothing, as far as is known."""
        if not self._is_measuring:
            return 0.0
        own = self._load(num_rows)
        known = self._nearest(num_rows, lambda load: load is not own and load.token_cost.num_steps >= _KNOWN_STEPS)
        return own.token_cost.per_token(0.0 if known is None else known.token_cost.per_token(0.0))

    def add_shadow(self, num_drafted: int, num_accepted: int) -> None:
        """What a row would have been given, had it been asked for, and what of it would have been accepted."""
        self._yield.add(self.max_tokens, ((num_drafted, num_accepted),))
        self._shadows.add(num_accepted)

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
        load.token_cost.add(sum(num_drafted for num_drafted, _ in outcome.drafts), ratio)
        num_tokens = 1 + sum(num_accepted for _, num_accepted in outcome.drafts) / outcome.num_rows
        self._budget.spend((ratio - num_tokens) * plain_s)

    def add_vain_wait(self, wait_s: float, num_rows: int) -> None:
        """A step of so many rows has waited for drafts that did not come."""
        # A process that was stopped for a minute meanwhile would not ask for the better part of an hour.
        self._budget.spend(min(wait_s, _MAX_RATIO * self.deadline_s(num_rows)))

    def _is_news(self, load: _Load, num_rows: int) -> bool:
        """Whether shadows show that asking may pay again."""
        is_more = self._yield.num_accepted(self.max_tokens) >= load.yield_at_pause + _NEWS
        return is_more and max(self._gains(num_rows).values()) > 1 - _DOUBT

    def _plain_interval(self, load: _Load, num_rows: int) -> int:
        """Steps between two that are plain to measure them."""
        is_clear = self._gain(num_rows, self.max_tokens) > _CLEAR_GAIN
        longest = _PLAIN_PROBE_INTERVAL_STEPS if is_clear else _CLOSE_INTERVAL_STEPS
        return min(longest, _MIN_PLAIN_PROBE_INTERVAL_STEPS << min(load.num_plain, 8))

    def _paying(self, load: _Load, num_rows: int) -> int:
        """The length that pays best. 0: none does, and asking pauses."""
        if self._yield.num_rows < _MIN_ROWS:
            return self.max_tokens
        gains = self._gains(num_rows)
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
        load.yield_at_pause = self._yield.num_accepted(self.max_tokens)
        load.paused_for = min(max(pause_steps, _MIN_PAUSE_STEPS), _MAX_PAUSE_STEPS)
        self.num_pauses += 1
        return 0

    def _gains(self, num_rows: int) -> dict[int, float]:
        return {length: self._gain(num_rows, length) for length in self._lengths}

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
        size = _size(num_rows)
        if size not in self._loads:
            is_like_another = any(size <= 2 * other and other <= 2 * size for other in self._loads)
            self._loads[size] = _Load(0 if is_like_another else _MIN_TRIAL_STEPS)
        return self._loads[size]


def _trial_steps(num_rows: int) -> int:
    return max(_MIN_TRIAL_STEPS, _TRIAL_ROWS // num_rows)


def _size(num_rows: int) -> int:
    """Sizes of batch that are held for one."""
    if num_rows <= _EXACT_ROWS:
        return num_rows
    return _EXACT_ROWS + round(_SIZES_PER_DOUBLING * math.log2(num_rows / _EXACT_ROWS))
