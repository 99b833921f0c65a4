"""How long steps of vLLM take and what they yield: how long a step may wait for drafts, and whether they pay.

Pure: time is an argument.
"""

from __future__ import annotations

from orchestrator.control.window import MedianWindow, RunningAverage

_FIRST_DEADLINE_S = 0.02
"""Before a decode step was measured."""
_MIN_SAMPLES = 32
"""Steps of both ways before they are held against each other."""
_WEIGHT = 0.02
"""Of the latest step in the averages: some hundred steps count, for a lookup hits in bursts."""
_MARGIN = 0.01
"""Asking stays as it is within this much of a gain."""
_FIRST_PAUSE_STEPS = 64
_MAX_PAUSE_STEPS = 4096
_PLAIN_PROBE_INTERVAL_STEPS = 128
"""While drafts are asked for, one step in so many goes without if no step did by itself: what plain steps take changes
with the length of the texts."""


class _LoadPace:
    """Of one size of batch, up to a factor of two."""

    __slots__ = ("plain_s", "plain_tokens", "round_s", "round_tokens", "since_plain")

    def __init__(self) -> None:
        self.plain_s = MedianWindow()
        """Steps without a draft, waiting not included."""
        self.round_s = RunningAverage(weight=_WEIGHT)
        """Steps that drafts were asked for, waiting included, whether any came or not."""
        self.round_tokens = RunningAverage(weight=_WEIGHT)
        """Tokens of a row in these."""
        self.since_plain = 0

    @property
    def gain(self) -> float | None:
        """Speed with asking over that without; None until it is known."""
        plain_s, round_s, tokens = self.plain_s.value, self.round_s.value, self.round_tokens.value
        if plain_s is None or round_s is None or tokens is None or self.round_s.num_values < _MIN_SAMPLES:
            return None
        return tokens * plain_s / round_s

    def forget_rounds(self) -> None:
        """The next ones shall speak for themselves."""
        self.round_s = RunningAverage(weight=_WEIGHT)
        self.round_tokens = RunningAverage(weight=_WEIGHT)


class Pace:
    """Told of every step; one engine's."""

    def __init__(self, deadline_s: float, *, is_measuring: bool) -> None:
        """deadline_s: 0 takes a measured decode step. is_measuring: ask only where it pays."""
        self._deadline_s = deadline_s
        self._is_measuring = is_measuring
        self._loads: dict[int, _LoadPace] = {}
        self._pause_steps = _FIRST_PAUSE_STEPS
        self._paused_for = 0
        self.num_pauses = 0
        """Times that asking did not pay."""

    @property
    def is_paused(self) -> bool:
        """Whether asking was found not to pay, a short while ago."""
        return self._paused_for > 0

    def deadline_s(self, num_rows: int) -> float:
        """How long the step may wait that has so many rows."""
        if self._deadline_s:
            return self._deadline_s
        plain_s = self._load(num_rows).plain_s.value
        return _FIRST_DEADLINE_S if plain_s is None else plain_s

    def wants_drafts(self, num_rows: int) -> bool:
        """Whether to ask after the step that has so many rows. Called once for each that could take drafts."""
        if not self._is_measuring:
            return True
        load = self._load(num_rows)
        if self._paused_for > 0:
            self._paused_for -= 1
            if self._paused_for == 0:
                load.forget_rounds()
            return False
        gain = load.gain
        if gain is not None and gain < 1 - _MARGIN:
            self._paused_for, self._pause_steps = self._pause_steps, min(2 * self._pause_steps, _MAX_PAUSE_STEPS)
            self.num_pauses += 1
            return False
        if gain is not None and gain > 1 + _MARGIN:
            self._pause_steps = _FIRST_PAUSE_STEPS
        load.since_plain += 1
        if load.since_plain < _PLAIN_PROBE_INTERVAL_STEPS:
            return True
        # One step, whether or not it can be measured: where prompts are read all the time few can.
        load.since_plain = 0
        return False

    def add_step(
        self, num_rows: int, step_s: float, num_tokens: int, *, num_draft_tokens: int, wait_s: float, was_asked: bool
    ) -> None:
        """A step that did nothing but decode and verify took step_s and yielded num_tokens, over all of its rows.

        num_draft_tokens: verified in it. wait_s: for these, before it. was_asked: for drafts, before it.
        """
        load = self._load(num_rows)
        if num_draft_tokens == 0:
            load.plain_s.add(step_s)
            load.since_plain = 0
        if was_asked:
            load.round_s.add(step_s + wait_s)
            load.round_tokens.add(num_tokens / num_rows)

    def _load(self, num_rows: int) -> _LoadPace:
        return self._loads.setdefault(num_rows.bit_length(), _LoadPace())
