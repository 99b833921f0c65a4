"""How much longer a target's steps become while drafts are made: a drafter that shares its processors slows them.

The step costs that a target publishes follow how busy its machine is. What changes in them as the gate switches is due
to the drafts, and no part of what plain decoding would take.
"""

from __future__ import annotations

from orchestrator.control.round_costs import RoundCosts

FOLLOWING_STEPS = 20
"""Steps after which a target's costs are those of a new state: each moves them by a tenth. No trial is shorter."""
_PAUSE_S = 1.0
"""Plans that are this much further apart were not made in one go: what changed in between is not the drafts' doing."""


class ContentionMeter:
    """Compares step costs before and after a switch of the gate. Pure: time is an argument."""

    def __init__(self, costs: RoundCosts) -> None:
        """costs: gets what is found, and which of the two states its table follows."""
        self._costs = costs
        self._is_drafting: bool | None = None
        self._latest = (0, 0.0)
        """Sequences and seconds of a step when they were last looked at."""
        self._latest_s = 0.0
        """When that was."""
        self._before: tuple[int, float] | None = None
        """Sequences and seconds of a step at the end of the state before; None: compared, or not to be compared."""
        self._due_s = 0.0
        """When the costs have followed."""

    def note(self, now_s: float, load: int, *, is_drafting: bool) -> None:
        """Call it with every plan. is_drafting: whether the gate is open."""
        costs = self._costs
        step_s = costs.step_s(1)
        following_s = FOLLOWING_STEPS * costs.step_s(load)
        has_paused = now_s > self._latest_s + following_s + _PAUSE_S
        if has_paused or is_drafting != self._is_drafting:
            self._before = None if has_paused else self._latest
            self._due_s = now_s + following_s
            self._is_drafting = is_drafting
            costs.is_drafting = None if has_paused else is_drafting
        elif now_s >= self._due_s:
            costs.is_drafting = is_drafting
            if self._before and self._before[0] == load:
                before_s = self._before[1]
                costs.add_contention(load, step_s / before_s if is_drafting else before_s / step_s)
            self._before = None
        self._latest = (load, step_s)
        self._latest_s = now_s
