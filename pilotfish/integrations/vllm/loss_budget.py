"""How much time asking for drafts may lose: a small share of all time, whatever else was believed."""

from __future__ import annotations

_SHARE = 0.02
"""Of all time."""
_MAX_SAVED_STEPS = 6
"""Plain steps' worth: what may be lost at once, where nothing was lost for long. A lookup hits in bursts: asking may
lose a little for long before it wins much."""
_MAX_WON_STEPS = 12
"""Of what asking has won, so much may be lost again: between two bursts there may be a hundred steps that lose a
little, and on a busy machine seem to lose more."""


class LossBudget:
    """A bucket that time fills and losses empty. Pure: time is an argument."""

    def __init__(self) -> None:
        self._saved_s: float | None = None
        self._now_s: float | None = None

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be lost for now."""
        return self._saved_s is not None and self._saved_s <= 0

    def advance(self, now_s: float, plain_step_s: float) -> None:
        """It is now_s, on a clock that only goes forward, and a step without drafts takes plain_step_s."""
        elapsed_s = 0.0 if self._now_s is None else now_s - self._now_s
        self._now_s = now_s
        max_s = _MAX_SAVED_STEPS * plain_step_s
        saved_s = max_s if self._saved_s is None else self._saved_s
        filled_s = max(saved_s, min(saved_s + _SHARE * elapsed_s, max_s))
        self._saved_s = min(filled_s, _MAX_WON_STEPS * plain_step_s)

    def spend(self, lost_s: float) -> None:
        """Asking has lost so much; less than 0: it has won."""
        if self._saved_s is not None:
            self._saved_s -= lost_s
