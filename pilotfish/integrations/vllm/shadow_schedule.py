"""When a step that does not wait for drafts asks all the same, to know what asking would yield.

Such a step costs vLLM nothing but the other thread's work, which takes from the same cores.
"""

from __future__ import annotations

_MIN_STEPS = 2
"""From one to the next at least, and with many rows more: about a row is asked for per step."""
_VAIN_SHADOWS, _MAX_DOUBLINGS = 32, 2
"""After so many that hit nothing shadows come half as often, and so on."""


class ShadowSchedule:
    """Pure: counts steps."""

    def __init__(self) -> None:
        self._since_last = 0
        self._num_vain = 0
        """One after another."""

    def is_due(self, num_rows: int) -> bool:
        """Whether the step that has so many rows asks. Called once for each that could."""
        self._since_last += 1
        doublings = min(self._num_vain // _VAIN_SHADOWS, _MAX_DOUBLINGS)
        if self._since_last < max(num_rows, _MIN_STEPS) << doublings:
            return False
        self._since_last = 0
        return True

    def add(self, num_accepted: int) -> None:
        """So many tokens of a row's draft would have been accepted."""
        self._num_vain = 0 if num_accepted else self._num_vain + 1
