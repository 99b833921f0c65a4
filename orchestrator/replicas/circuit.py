"""When a replica counts as lost, when a failing one is left alone, and when it is tried again."""

from __future__ import annotations

from typing import Literal, get_args

CircuitState = Literal["closed", "half_open", "open"]
CIRCUIT_STATES: tuple[CircuitState, ...] = get_args(CircuitState)

_FAILURES_TO_OPEN = 3
_TOGETHER_S = 0.05
"""Failures this close together are one: a stall of a moment fails every request that is under way."""
_FIRST_PAUSE_S = 0.5
_MAX_PAUSE_S = 30.0
_TRIAL_S = 5.0
"""A trial that comes to no end in this time (its request does not draft just now) makes way for another."""


class Circuit:
    """Closed, open after some failures in a row, half-open after a pause. Time is an argument.

    Half-open, it lets one trial through at a time: its success closes the circuit, its failure opens it again,
    for twice as long.
    """

    def __init__(self) -> None:
        self._num_failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self._open_until_s = float("-inf")
        self._last_failure_s = float("-inf")
        self._trial_until_s = float("-inf")

    @property
    def is_closed(self) -> bool:
        """All is well, or nearly."""
        return self._num_failures < _FAILURES_TO_OPEN

    def allows(self, now_s: float) -> bool:
        """Whether something new may begin: anything while closed, the next trial while half-open."""
        return self.is_closed or now_s >= max(self._open_until_s, self._trial_until_s)

    def state(self, now_s: float) -> CircuitState:
        """The state's name, for people."""
        if self.is_closed:
            return "closed"
        return "open" if now_s < self._open_until_s else "half_open"

    def begin_trial(self, now_s: float) -> None:
        """What begins now, with the circuit half-open, is its trial."""
        self._trial_until_s = now_s + _TRIAL_S

    def end_trial(self) -> None:
        """The trial ended without a result: another may begin."""
        self._trial_until_s = float("-inf")

    def failed(self, now_s: float) -> bool:
        """Count a failure; True if it opens the circuit."""
        if now_s - self._last_failure_s < _TOGETHER_S:
            return False
        self._last_failure_s = now_s
        self._num_failures += 1
        if self.is_closed or now_s < self._open_until_s:
            return False
        self.end_trial()
        self._open_until_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        return True

    def succeeded(self) -> bool:
        """Count a success; True if it ends a time of failures that had opened the circuit."""
        had_opened = not self.is_closed
        self._num_failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self._open_until_s = float("-inf")
        self.end_trial()
        return had_opened


class SilenceWatch:
    """Whether a replica has gone silent. Asked every `check_interval_s`; time is an argument."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._heard_s = self._checked_s = now_s

    @property
    def check_interval_s(self) -> float:
        return self._timeout_s / 4

    def heard(self, now_s: float) -> None:
        self._heard_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Whether the replica has been silent for too long."""
        slept_s, self._checked_s = now_s - self._checked_s, now_s
        if slept_s > 2 * self.check_interval_s:
            # This process stood still itself (frozen, swapped out): what was said meanwhile is yet to be read.
            self._heard_s = now_s
        return now_s - self._heard_s > self._timeout_s
