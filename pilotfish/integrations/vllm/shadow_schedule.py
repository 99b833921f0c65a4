"""When a step that does not wait for drafts asks all the same, to know what asking would yield.

Such a step costs vLLM nothing but the other thread's work, which takes from the same cores.
"""

from __future__ import annotations

_MIN_STEPS = 2
"""From one to the next at least, and with many rows more: about a row is asked for per step."""
_MAX_STEPS = 32
"""About a second: what begins to pay is noticed within an answer."""
_VAIN_SHADOWS, _MAX_DOUBLINGS = 32, 2
"""After so many that hit nothing shadows come half as often, and so on."""
_VAIN_PER_TOKEN = 8
"""An accepted token makes up for so many that hit nothing: bursts bring shadows back at once, chance hits do not."""


class ShadowSchedule:
    """Pure: counts steps."""

    def __init__(self) -> None:
        self._since_last = 0
        self._num_vain = 0
        """More of them than hits make up for."""

    def is_due(self, num_rows: int) -> bool:
        """Whether the step that has so many rows asks. Called once for each that could."""
        self._since_last += 1
        doublings = self._num_vain // _VAIN_SHADOWS
        if self._since_last < min(max(num_rows, _MIN_STEPS) << doublings, _MAX_STEPS):
            return False
        self._since_last = 0
        return True

    def add(self, num_accepted: int) -> None:
        """So many tokens of a row's draft would have been accepted."""
        change = -num_accepted * _VAIN_PER_TOKEN or 1
        self._num_vain = min(max(self._num_vain + change, 0), _VAIN_SHADOWS * _MAX_DOUBLINGS)
