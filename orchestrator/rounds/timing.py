"""How long a round took."""

from __future__ import annotations

import msgspec

from pilotfish.types import LoadReport


class Mark(msgspec.Struct, frozen=True):
    """A moment of a round."""

    at_s: float
    num_tokens: int
    """Tokens that had come, but for those that a grammar drafted: they take no time, whoever drafts the rest."""
    load: LoadReport
    """The replica's last report then."""


class RoundTiming(msgspec.Struct, frozen=True):
    """The moments that a round's times are taken from. All times are 0 before the first verdict."""

    asked: Mark
    """The command goes out."""
    first: Mark | None = None
    """The first verdict comes: a token's time is measured from here, as the first may wait for a step under way."""
    last: Mark | None = None
    """The last verdict comes; one on a draft that was sent into a run does not count."""

    def arrived(self, mark: Mark) -> RoundTiming:
        """The timing after one more verdict."""
        return RoundTiming(self.asked, self.first or mark, mark)

    @property
    def elapsed_s(self) -> float:
        """Time from the command to the last verdict."""
        return 0.0 if self.last is None else max(0.0, self.last.at_s - self.asked.at_s)

    @property
    def prefill_s(self) -> float:
        """Time that prefills added to the replica's steps during the round."""
        return 0.0 if self.last is None else _prefill_s(self.asked, self.last)

    @property
    def num_steps(self) -> int:
        """Steps that the replica took meanwhile."""
        return 0 if self.last is None else max(0, self.last.load.num_steps - self.asked.load.num_steps)

    @property
    def plain_token_s(self) -> float:
        """Time of a token of a run after its first verdict, without what prefills added."""
        if self.first is None or self.last is None or self.last.num_tokens == self.first.num_tokens:
            return 0.0
        elapsed_s = self.last.at_s - self.first.at_s - _prefill_s(self.first, self.last)
        return max(0.0, elapsed_s) / (self.last.num_tokens - self.first.num_tokens)


def _prefill_s(since: Mark, until: Mark) -> float:
    """Time that prefills added to the replica's steps between the two moments."""
    return max(0, until.load.prefill_time_ns - since.load.prefill_time_ns) / 1e9
