"""How many draft tokens a step asks for, and how long it may wait for them: what pays, as measured.

A step of vLLM takes longer with drafts, by the wait for them and by what verifying them computes, and yields more
tokens. At one sequence verifying is nearly free; at many it is not, and shorter drafts pay, or none.

Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.integrations.vllm.batch_load import MIN_TRIAL_STEPS, BatchLoad, BatchLoads
from pilotfish.integrations.vllm.draft_yield import DraftYield
from pilotfish.integrations.vllm.loss_budget import LossBudget
from pilotfish.integrations.vllm.shadow_schedule import ShadowSchedule

_FIRST_DEADLINE_S = 0.02
"""Before a decode step was measured."""
_MIN_ROWS = 64
"""Rows that were asked for before it is judged what that yields."""
_MARGIN = 0.01
"""Asking stays as it is within this much of a gain."""
_TRIAL_ROWS = 16
"""Asked for after a pause, whatever is believed: what they cost is measured anew (shadows tell what they yield)."""
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
_NEWS = 0.04
"""Accepted tokens a row that shadows show more than was known when a pause began: they end it. The costs that were
believed then are measured anew."""
_DOUBT = 0.05
"""They may be wrong by so much."""


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
        self._loads = BatchLoads()
        self._yield = DraftYield(max_tokens)
        self._shadows = ShadowSchedule()
        self._budget = LossBudget()
        self.num_pauses = 0
        """Times that asking was found not to pay."""

    def deadline_s(self, num_rows: int) -> float:
        """How long the step may wait that has so many rows."""
        return self._deadline_s or self._loads.plain(num_rows).median_s or _FIRST_DEADLINE_S

    def advance(self, now_s: float, num_rows: int) -> None:
        """It is now_s, and the batch has so many rows."""
        self._budget.advance(now_s, self._loads.plain(num_rows).median_s or _FIRST_DEADLINE_S)

    def num_draft_tokens(self, num_rows: int) -> int:
        """Tokens to ask for after the step that has so many rows; 0: none. Called once for each that could."""
        if not self._is_measuring:
            return self.max_tokens
        load = self._loads.of(num_rows)
        if load.paused_for > 0:
            load.trials_left = _trial_steps(num_rows)
            load.paused_for = 0 if self._is_news(load, num_rows) else load.paused_for - 1
            if load.paused_for > 0:
                return 0
        if self._budget.is_spent:
            return 0
        load.since_plain = None if load.since_plain is None else load.since_plain + 1
        if load.since_plain is None or load.since_plain > self._plain_interval(load, num_rows):
            # One step, whether or not it can be measured: where prompts are read all the time few can.
            load.since_plain = 0
            load.num_plain += 1
            return 0
        return self._paying(load, num_rows)

    def wants_shadow(self, num_rows: int) -> bool:
        """Whether a step of so many rows, which does not ask, should ask all the same, to know what that would yield:
        nobody waits. Called once for each that could."""
        # A plain step of a load that asks is there to be measured.
        is_paused = self._is_measuring and self._loads.of(num_rows).paused_for > 0
        return is_paused and not self._budget.is_spent and self._shadows.is_due(num_rows)

    def token_cost(self, num_rows: int) -> float:
        """What a draft token more adds to the step of so many rows, in plain ones. 0: nothing, as far as is known."""
        if not self._is_measuring:
            return 0.0
        return self._loads.token_cost(num_rows)

    def add_shadow(self, num_drafted: int, num_accepted: int) -> None:
        """What a row would have been given, had it been asked for, and what of it would have been accepted."""
        self._yield.add(self.max_tokens, ((num_drafted, num_accepted),))
        self._shadows.add(num_accepted)

    def add_step(self, outcome: StepOutcome) -> None:
        """Learn from a step."""
        load = self._loads.of(outcome.num_rows)
        if outcome.num_requested_tokens == 0:
            load.plain.add(outcome.step_s)
            load.since_plain = 0
            return
        self._yield.add(outcome.num_requested_tokens, outcome.drafts)
        plain_s = self._loads.plain(outcome.num_rows).average_s
        if not plain_s:
            return
        ratio = min(outcome.step_s / plain_s, _MAX_RATIO)
        load.costs.add(outcome.num_requested_tokens, ratio)
        load.token_cost.add(sum(num_drafted for num_drafted, _ in outcome.drafts), ratio)
        num_tokens = 1 + sum(num_accepted for _, num_accepted in outcome.drafts) / outcome.num_rows
        self._budget.spend((ratio - num_tokens) * plain_s)

    def add_shadow_step(self, step_s: float, num_rows: int) -> None:
        """A step of so many rows has asked without waiting: the other thread's work may have made it longer."""
        plain_s = self._loads.plain(num_rows).average_s
        self._budget.spend(max(min(step_s, _MAX_RATIO * plain_s) - plain_s, 0.0))

    def add_vain_wait(self, wait_s: float, num_rows: int) -> None:
        """A step of so many rows has waited for drafts that did not come."""
        # A process that was stopped for a minute meanwhile would not ask for the better part of an hour.
        self._budget.spend(min(wait_s, _MAX_RATIO * self.deadline_s(num_rows)))

    def _is_news(self, load: BatchLoad, num_rows: int) -> bool:
        """Whether shadows show that asking may pay again."""
        is_more = self._yield.num_accepted(self.max_tokens) >= load.yield_at_pause + _NEWS
        return is_more and max(self._gains(num_rows).values()) > 1 - _DOUBT

    def _plain_interval(self, load: BatchLoad, num_rows: int) -> int:
        """Steps between two that are plain to measure them."""
        is_clear = self._gain(num_rows, self.max_tokens) > _CLEAR_GAIN
        longest = _PLAIN_PROBE_INTERVAL_STEPS if is_clear else _CLOSE_INTERVAL_STEPS
        return min(longest, _MIN_PLAIN_PROBE_INTERVAL_STEPS << min(load.num_plain, 8))

    def _paying(self, load: BatchLoad, num_rows: int) -> int:
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
        costs = self._loads.nearest(num_rows, lambda load: load.costs.is_known)
        ratio = 1.0 if costs is None else costs.costs.ratio(length, self._yield)
        return (1 + self._yield.num_accepted(length)) / ratio


def _trial_steps(num_rows: int) -> int:
    return max(MIN_TRIAL_STEPS, _TRIAL_ROWS // num_rows)
