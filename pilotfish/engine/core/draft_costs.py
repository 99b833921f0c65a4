"""What drafts cost a target that drafts for itself: how far to draft, and how far to branch.

A step of T seconds, drafts included, yields Y tokens. Whatever makes it t seconds longer pays if it adds more than
t * Y / T tokens. A draft token adds as much as the target is likely to come to it; it takes its row of the verification
and its share of the drafter's round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_DECAY = 0.98
"""Of what was measured, each step: about the last fifty count."""
_FREE = 1.1
"""A tree may fill a step with nodes as long as it takes no more than this times the step of a chain."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The least confidence that pays, as probabilities."""

    round: float = 0.2
    """That the target comes to the newest tokens, for another round of the drafter."""
    node: float = 0.02
    """That the target comes to a node of a tree, for its verification."""


DEFAULT_THRESHOLDS = Thresholds()


class DraftCosts:
    """Moving sums over steps. Pure: time is an argument."""

    def __init__(self) -> None:
        self._num_tokens = self._time_s = self._num_rounds = self._draft_s = 0.0

    def add(self, num_tokens: int, step_s: float, num_rounds: int, draft_s: float) -> None:
        """A step without prefills that committed num_tokens, and the drafts that were made after it."""
        self._num_tokens = _DECAY * self._num_tokens + num_tokens
        self._time_s = _DECAY * self._time_s + step_s + draft_s
        if num_rounds:  # else the time is of lookups, and of what drafters keep
            self._num_rounds = _DECAY * self._num_rounds + num_rounds
            self._draft_s = _DECAY * self._draft_s + draft_s

    def thresholds(self, step_s: Callable[[float], float], num_sequences: int, num_draft_tokens: int) -> Thresholds:
        """For drafts of so many sequences; the defaults before the first step.

        step_s: seconds of a step by its rows. num_draft_tokens: of a sequence, at most.
        """
        if self._time_s == 0 or self._num_rounds == 0:
            return DEFAULT_THRESHOLDS
        tokens_per_s = self._num_tokens / self._time_s
        num_rows = num_sequences * num_draft_tokens
        row_s = max(0.0, step_s(num_sequences + num_rows) - step_s(num_sequences)) / num_rows
        round_s = self._draft_s / self._num_rounds
        return Thresholds(
            round=min(max((round_s / num_sequences + row_s) * tokens_per_s, 0.02), 0.9),
            node=min(max(row_s * tokens_per_s, 0.005), 0.5),
        )


def num_free_nodes(step_s: Callable[[float], float], num_sequences: int, num_draft_tokens: int, most: int) -> int:
    """Nodes that each sequence's tree may have, with the step about as short as for chains of num_draft_tokens."""
    longest_s = _FREE * step_s(num_sequences * (1 + num_draft_tokens))
    num_nodes = num_draft_tokens
    while num_nodes < most and step_s(num_sequences * (2 + num_nodes)) <= longest_s:
        num_nodes += 1
    return num_nodes
