"""What asking a drafter that has no answer takes."""

from __future__ import annotations

from orchestrator.control.window import ClippedAverage, RunningAverage

_MIN_ASKS = 16
"""Of which it is known. They come in a row, where a text is new: a few of them say little."""
ASSUMED_RUN_TOKENS = 4.0


class VainAsks:
    """The sequence misses the target's steps meanwhile, and decodes plainly then until it asks again."""

    def __init__(self) -> None:
        self._lost_s = ClippedAverage(weight=0.05)
        self._run_tokens = RunningAverage(weight=0.02)

    @property
    def is_known(self) -> bool:
        return self._lost_s.num_values >= _MIN_ASKS

    @property
    def lost_s(self) -> float:
        """Seconds over what the tokens decoded after it take; 0 before any."""
        return max(0.0, self._lost_s.value or 0.0)

    @property
    def run_tokens(self) -> float:
        """Decoded plainly before the next time."""
        return self._run_tokens.value or ASSUMED_RUN_TOKENS

    def hope(self) -> None:
        """Another try: half of it is believed, so that the next loss is noticed in a few questions."""
        self._lost_s.scale(0.5)

    def add(self, num_run_tokens: int, lost_s: float) -> None:
        """lost_s: what asking took, and num_run_tokens, over the steps in which they were decoded."""
        self._run_tokens.add(num_run_tokens)
        self._lost_s.add(lost_s)
