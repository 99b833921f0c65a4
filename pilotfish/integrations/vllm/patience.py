"""Whether a step waits for the drafts that it asked for: no longer after a first disappointment, and again once answers
come in time.

Pure: counts steps. A step that waits in vain costs a whole decode step; an answer that nobody waits for costs nothing
and tells as much.
"""

from __future__ import annotations

from typing import Literal

Asking = Literal["wait", "probe", "none"]
"""wait: ask, and wait for the answers. probe: ask, decode plainly, and see when they come. none: do not ask."""

_MAX_DISTANCE_STEPS = 64
"""Between probes: a service that is well again is waited for after a second or two."""
_TRUST_STEPS = 50
"""In time, one after another, until a disappointment counts as the first again: one in so many costs 2% at most."""
_PROBES_AFTER_RELAPSE = 2


class Patience:
    """One engine's. Every step that might ask is `next` and then, as it turned out, `add_wait` or `add_probe`."""

    def __init__(self) -> None:
        self._is_waiting = True
        self._num_in_time = _TRUST_STEPS
        """Answers in a row that came before their deadline, since waiting began or ended."""
        self._num_wanted = 1
        """Of these, before it waits again."""
        self._distance = 1
        self._steps_left = 0
        """Until the next probe."""

    def next(self) -> Asking:
        """What the step does that has just begun."""
        if self._is_waiting:
            return "wait"
        if self._steps_left > 0:
            self._steps_left -= 1
            return "none"
        return "probe"

    def add_wait(self, *, is_in_time: bool) -> None:
        """A step has waited; is_in_time: for all that it waited for."""
        if is_in_time:
            self._num_in_time += 1
            if self._num_in_time == _TRUST_STEPS:
                self._num_wanted = self._distance = 1
            return
        if self._num_in_time < _TRUST_STEPS:
            # It was trusted too soon. The distance goes on from where it was: whoever disappoints again and again is
            # waited for in vain ever more rarely.
            self._num_wanted = _PROBES_AFTER_RELAPSE
            self._lengthen()
        self._is_waiting = False
        self._num_in_time = 0
        self._steps_left = self._distance - 1

    def add_probe(self, *, is_in_time: bool) -> None:
        """The answers to a probe have come, or the deadline that they would have had is over."""
        if not is_in_time:
            self._num_in_time = 0
            self._lengthen()
            self._steps_left = self._distance - 1
            return
        self._num_in_time += 1
        if self._num_in_time >= self._num_wanted:
            self._is_waiting = True
            self._num_in_time = 0

    def _lengthen(self) -> None:
        self._distance = min(2 * self._distance, _MAX_DISTANCE_STEPS)
