"""How long a speculating sequence is away between its verdict and its next draft. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 0.25
"""Of the latest value in a moving average."""
_PATIENCE = 1.5
"""A sequence that takes this many times as long as usual is not waited for any longer,"""
_NUM_DEVIATIONS = 4
"""or where that is later, one that is so many mean deviations late, as TCP's retransmission timer has it (RFC 6298):
drafts made ahead are there at once, those that were not foreseen take long, and both are usual."""
_GRACE_NS = 300_000
"""What a timer and a busy machine may be late."""
_EARLY_NS = 100_000
"""What a timer may be early."""
_MAX_SKIPS = 31
_UNSEEN_SHARE = 0.9
"""Of the time to the end of the step in which it came back: it came at some time before."""


@dataclass(slots=True)
class Absence:
    """One sequence's. Times in nanoseconds on one clock."""

    usual_ns: float | None = None
    """On average; None: not known yet."""
    since_ns: int = 0
    """When it was last answered."""
    is_late: bool = False
    """Whether it was waited for in vain, this time."""
    _deviation_ns: float = 0.0
    _given_up_ns: int = 0
    """How long it had been away when it was found to be late."""
    _num_late: int = 0
    """Times that it was late, less those that it was not."""
    _num_skips: int = 0
    """Rounds in which it is not waited for: who is late again and again, ever more seldom."""

    @property
    def is_awaited(self) -> bool:
        """Whether it may be waited for, as far as its own record goes."""
        return not self.is_late and self._num_skips == 0

    def end_ns(self, usual_ns: float, worth_ns: float) -> float:
        """When it is not waited for any longer.

        usual_ns: its own average, or what stands in for it. worth_ns: being away for longer than this is not worth
        waiting for, but somebody whose time has just passed may be back any moment.
        """
        spread_ns = min(usual_ns + _NUM_DEVIATIONS * self._deviation_ns, worth_ns)
        return self.since_ns + max(_PATIENCE * usual_ns, spread_ns) + _GRACE_NS

    def note_time(self, now_ns: int, usual_ns: float, worth_ns: float) -> None:
        """It is still away: who is away for too long is late."""
        if self.is_awaited and now_ns + _EARLY_NS >= self.end_ns(usual_ns, worth_ns):
            self.is_late, self._given_up_ns = True, now_ns - self.since_ns
            if worth_ns <= 0:
                # Held to be slow at once: waiting for it again would not pay.
                self.usual_ns = _PATIENCE * usual_ns

    def note_return(self, now_ns: int, *, is_seen: bool) -> None:
        """is_seen: it came back just now; else at some time in the step before."""
        away_ns: float = now_ns - self.since_ns
        if not is_seen:
            away_ns = (self._given_up_ns + away_ns) / 2 if self.is_late else _UNSEEN_SHARE * away_ns
        self._count(is_seen=is_seen)
        if self.usual_ns is None:
            self.usual_ns, self._deviation_ns = away_ns, away_ns / _NUM_DEVIATIONS
        elif is_seen or self.is_late:
            self._deviation_ns += _WEIGHT * (abs(away_ns - self.usual_ns) - self._deviation_ns)
            self.usual_ns += _WEIGHT * (away_ns - self.usual_ns)
        else:
            self.usual_ns = min(self.usual_ns, away_ns)
        self.is_late = False

    def _count(self, *, is_seen: bool) -> None:
        if self._num_skips:
            self._num_skips -= 1
        elif self.is_late:
            # Once is chance.
            self._num_skips = min((1 << self._num_late) - 1, _MAX_SKIPS)
            self._num_late += 1
        elif is_seen:
            self._num_late = max(0, self._num_late - 1)
