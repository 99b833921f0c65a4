"""How long a speculating sequence is away between its verdict and its next draft. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_WEIGHT = 0.25
"""Weight of the latest value in a moving average."""
_NUM_DEVIATIONS = 4
"""A sequence that is so many mean deviations late is not expected any more (as TCP's timer has it, RFC 6298)."""
_GRACE_NS = 300_000
"""Time that a timer and a busy machine may be late."""
_RARE = 0.02
"""A mode below 2 % of the returns is dropped, that is after 13 returns of the other."""

Returns = Sequence[tuple[float, float]]
"""Times in nanoseconds after which a sequence may be back, each with its probability."""


@dataclass(slots=True)
class ReturnTime:
    """The return time of one sequence. Times in nanoseconds on one clock.

    Two times are usual, not their average: drafts made ahead are there at once, others take a round trip and drafting.
    """

    short_ns: float
    long_ns: float
    since_ns: int = 0
    """When it was last answered."""
    is_known: bool = False
    """Whether the times are more than a guess."""
    _short_share: float = 0.5
    """Share of its returns that come after the shorter time."""
    _deviation_ns: float = 0.0

    @property
    def mean_ns(self) -> float:
        """How long it is away on average."""
        return self._short_share * self.short_ns + (1 - self._short_share) * self.long_ns

    def returns(self, now_ns: float) -> Returns:
        """When it may be back; nothing: it is not expected any more."""
        away_ns = now_ns - self.since_ns
        usual = ((self.short_ns, self._short_share), (self.long_ns, 1 - self._short_share))
        expected = [(in_ns, share) for ns, share in usual if (in_ns := self._in_ns(ns - away_ns, ns)) is not None]
        whole = sum(share for _, share in expected)
        return [(in_ns, share / whole) for in_ns, share in expected] if whole else ()

    def add(self, away_ns: float) -> None:
        """Take in a return after so long."""
        if not self.is_known:
            self.is_known = True
            self.short_ns = away_ns
            self.long_ns = away_ns
            return
        is_short = away_ns < (self.short_ns + self.long_ns) / 2
        usual_ns = self.short_ns if is_short else self.long_ns
        self._deviation_ns += _WEIGHT * (abs(away_ns - usual_ns) - self._deviation_ns)
        usual_ns += _WEIGHT * (away_ns - usual_ns)
        if is_short:
            self.short_ns = usual_ns
        else:
            self.long_ns = usual_ns
        self._short_share += _WEIGHT * (is_short - self._short_share)
        # A time that was long ago is no second one: whatever comes is held against what is usual now.
        if self._short_share > 1 - _RARE:
            self.long_ns = self.short_ns
        elif self._short_share < _RARE:
            self.short_ns = self.long_ns

    def _in_ns(self, left_ns: float, usual_ns: float) -> float | None:
        """When it may be back if it usually is in left_ns; None: no more."""
        if left_ns > 0:
            return max(left_ns, _GRACE_NS)
        if -left_ns > max(usual_ns / 2, _NUM_DEVIATIONS * self._deviation_ns) + _GRACE_NS:
            return None
        return _GRACE_NS - left_ns  # who is late takes the longer the later it is
