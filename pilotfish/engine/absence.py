"""How long a speculating sequence is away between its verdict and its next draft. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

_WEIGHT = 0.25
"""Of the latest value in a moving average."""
_PATIENCE = 1.5
"""A sequence that takes this many times as long as usual is not expected any more,"""
_NUM_DEVIATIONS = 4
"""or where that is later, one that is so many mean deviations late, as TCP's retransmission timer has it (RFC 6298)."""
_GRACE_NS = 300_000
"""What a timer and a busy machine may be late."""
_RARE = 0.02
"""Share of the returns that is none: after 13 of the other kind."""
_UNSEEN_SHARE = 0.9
"""Of the time to the end of the step in which it came back: it came at some time before."""

Returns = Sequence[tuple[float, float]]
"""In how many nanoseconds a sequence may be back, each with its probability."""


@dataclass(slots=True)
class Absence:
    """One sequence's. Times in nanoseconds on one clock.

    Two times are usual: drafts made ahead are there at once, others take a round trip and the drafting. Their average
    would be neither.
    """

    since_ns: int = 0
    """When it was last answered."""
    short_ns: float = 0.0
    long_ns: float = 0.0
    is_known: bool = False
    """Whether it is known how long it is away."""
    _short_share: float = 0.5
    """Of its returns, those after the shorter time."""
    _deviation_ns: float = 0.0
    _given_up_ns: int = 0
    """How long it had been away when a wait for it ended in vain, this time; 0: none did."""

    @property
    def mean_ns(self) -> float:
        """How long it is away on average; 0 as long as that is not known.

        Not the longer time: a draft that is mostly there at once is worth waiting for even where its other time is
        not, and after one hiccup the longer time stays long for a dozen rounds.
        """
        return self._short_share * self.short_ns + (1 - self._short_share) * self.long_ns

    def of_another(self) -> Absence:
        """What is known of this sequence, believed of one that is not known yet."""
        return dataclasses.replace(self, _given_up_ns=0)

    def leave(self, now_ns: int) -> None:
        """It has been answered."""
        self.since_ns, self._given_up_ns = now_ns, 0

    def give_up(self, now_ns: int) -> None:
        """A wait has ended without it."""
        self._given_up_ns = max(1, now_ns - self.since_ns)

    def returns(self, now_ns: float, guess_ns: float) -> Returns:
        """When it may be back; nothing: it is not expected.

        guess_ns: how long it is away, as long as that is not known.
        """
        if self._given_up_ns:
            return ()
        away_ns = now_ns - self.since_ns
        if not self.is_known:
            in_ns = self._in_ns(away_ns, guess_ns)
            return () if in_ns is None else ((in_ns, 1.0),)
        short_in_ns, long_in_ns = self._in_ns(away_ns, self.short_ns), self._in_ns(away_ns, self.long_ns)
        if long_in_ns is None:
            return ()
        if short_in_ns is None:
            return ((long_in_ns, 1.0),)
        return ((short_in_ns, self._short_share), (long_in_ns, 1 - self._short_share))

    def _in_ns(self, away_ns: float, usual_ns: float) -> float | None:
        """When it may be back if it usually is after usual_ns; None: no more."""
        late_ns = away_ns - usual_ns
        if late_ns < 0:
            return -late_ns if late_ns < -_GRACE_NS else _GRACE_NS
        if late_ns > max((_PATIENCE - 1) * usual_ns, _NUM_DEVIATIONS * self._deviation_ns) + _GRACE_NS:
            return None
        return late_ns + _GRACE_NS  # who is late takes the longer the later it is

    def note_return(self, now_ns: int, *, is_seen: bool) -> None:
        """is_seen: it came back just now; else at some time in the step before, and not before it was given up."""
        away_ns, least_ns = now_ns - self.since_ns, self._given_up_ns
        if is_seen:
            self._learn(away_ns)
        elif least_ns and (not self.is_known or least_ns > self.long_ns):
            self._learn((least_ns + away_ns) / 2)
        elif self.is_known and away_ns < self.short_ns:
            self._learn(max(least_ns, _UNSEEN_SHARE * away_ns))
        elif self.is_known and away_ns < self.long_ns:
            self._learn(max(least_ns, self.short_ns))
        elif least_ns > self.short_ns:
            self._learn(self.long_ns)
        # Else it may have been either time.

    def _learn(self, away_ns: float) -> None:
        if not self.is_known:
            self.is_known, self.short_ns, self.long_ns = True, away_ns, away_ns
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
