"""Until when a step waits, and for whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_NUM_PLANS = 8
"""An eighth of the awaited makes a new plan, which takes longer the more they are."""


class GatheringPlan:
    """Made before a step, and made anew when what it rests on has changed. Times in nanoseconds on one clock."""

    def __init__(self) -> None:
        self.end_ns = 0.0
        """The step begins then."""
        self._awaited: set[int] = set()
        """Who may come until then."""
        self._num_left = 0
        """When so few of them are left, those who came have changed what is worth waiting for."""

    def begin(self, now_ns: int, awaited: Iterable[int]) -> None:
        """These sequences may be waited for. Nobody else counts: with many who are away for long, most of the awaited
        would have to come before it shows that the rest is not worth the wait."""
        self.end_ns = float(now_ns)
        self._awaited = set(awaited)
        self._num_left = len(self._awaited) - max(1, len(self._awaited) // _NUM_PLANS)

    def cancel(self) -> None:
        """It holds no longer."""
        self.end_ns = 0.0

    def note_ready(self, sequence_id: int) -> None:
        """This one waits now, too."""
        if sequence_id in self._awaited:
            self._awaited.remove(sequence_id)
        else:
            self.cancel()  # nobody foresaw it

    def is_over(self, now_ns: int) -> bool:
        """Whether it needs to be made anew."""
        return now_ns >= self.end_ns or len(self._awaited) <= self._num_left
