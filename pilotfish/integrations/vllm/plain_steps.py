"""What steps of one size of batch take that ask for no drafts."""

from __future__ import annotations

from pilotfish.averages import ClippedAverage, MedianWindow

_WEIGHT = 0.25
"""Of a step in the average: a busy machine is another one a second later."""


class PlainSteps:
    """Pure."""

    __slots__ = ("_average_s", "_median_s")

    def __init__(self) -> None:
        self._median_s = MedianWindow()
        self._average_s = ClippedAverage(_WEIGHT)

    @property
    def is_known(self) -> bool:
        """Whether there was one."""
        return self._median_s.value is not None

    @property
    def median_s(self) -> float:
        """What a step takes that nothing came across; 0: not known."""
        return self._median_s.value or 0.0

    @property
    def average_s(self) -> float:
        """What others are held against as an average: on a busy machine a median is less than that. 0: not known."""
        return self._average_s.value or 0.0

    def add(self, step_s: float) -> None:
        """A step took so long."""
        self._median_s.add(step_s)
        self._average_s.add(step_s)
