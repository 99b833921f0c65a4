"""Who shares a target's steps: the sequences that a gate decides for, and those that draft or not whatever it says.

Costs are those of the steps that a round or token was in. What the others lose while drafts are verified beside them
counts against the drafts: what is to grow is the speed of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.control.round_costs import RoundCosts
from pilotfish.speculation.cost import expected_tokens_by_position


def expected_tokens(probabilities: Sequence[float], k: int) -> float:
    """Expected tokens of a round of K: 1 + the sum over i of Pr(the first i are accepted)."""
    return expected_tokens_by_position(probabilities, min(k, len(probabilities)))


@dataclass(slots=True)
class Decoding:
    """Sequences of this orchestrator that decode on a replica."""

    num: int = 0
    num_rows: float = 0.0
    """Token rows of theirs in a step."""
    num_speculating: int = 0
    """Sequences that ask a drafter."""
    num_requested_tokens: int = 0
    """Draft tokens in a row that all of those together ask for."""

    def __sub__(self, part: Decoding) -> Decoding:
        return Decoding(
            self.num - part.num,
            self.num_rows - part.num_rows,
            self.num_speculating - part.num_speculating,
            self.num_requested_tokens - part.num_requested_tokens,
        )

    def add(self, change: Decoding) -> None:
        self.num += change.num
        self.num_rows += change.num_rows
        self.num_speculating += change.num_speculating
        self.num_requested_tokens += change.num_requested_tokens


class Mixture:
    """A replica's sequences, as one gate sees them."""

    def __init__(self, load: int, own: Decoding, governed: Decoding, costs: RoundCosts) -> None:
        """own: this orchestrator's sequences; `load` counts other orchestrators' as well, which are taken to be like
        them. governed: the part of own that the gate decides for."""
        self._load = load
        self._costs = costs
        self._num_governed = governed.num
        self._others = own - governed
        self._scale = load / max(1, own.num)
        self._num_plain = self._others.num - self._others.num_speculating
        self.plain_rows = self.rows(1.0)
        """Rows of a step while the gate is closed: a sequence that drafts is in some steps only."""
        self.other_k = 0
        """Draft tokens of the others that draft; 0: none does."""
        self._other_s = 0.0
        """Duration of their rounds while the gate is closed."""
        if self._others.num_speculating:
            drafting_rows = self._others.num_rows - self._num_plain
            self.other_k = round(self._others.num_requested_tokens / self._others.num_speculating)
            self._other_s = costs.seconds(load, self.other_k, self.plain_rows)
            share = min(1.0, costs.interval_s(load, self.plain_rows) / self._other_s)
            self.plain_rows -= (1 - share) * self._scale * drafting_rows
        self.plain_s = costs.plain_s(load, self.plain_rows)
        """A token of plain decoding while it is closed."""

    def rows(self, rows_each: float) -> float:
        """Rows of a step in which each governed sequence has rows_each, and all others what they have."""
        return self._scale * (self._others.num_rows + self._num_governed * rows_each)

    def loss(self, rows: float, probabilities: Sequence[float]) -> float:
        """What others lose by rounds in steps of so many rows, for each sequence that drafts: in tokens in the time of
        a plain one."""
        lost = self._num_plain * (1 - self.plain_s / self._costs.interval_s(self._load, rows))
        if self.other_k:
            slower = 1 / self._other_s - 1 / self._costs.seconds(self._load, self.other_k, rows)
            num_tokens = expected_tokens(probabilities, self.other_k)
            lost += self._others.num_speculating * num_tokens * self.plain_s * slower
        return lost / max(1, self._num_governed)
