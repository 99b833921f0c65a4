"""What a head apart from its target knows of a sequence besides its tokens.

Legend: n positions, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.drafting.draft_growth import DraftRows


@dataclass(slots=True)
class FeatureWindow:
    """Features of a sequence that rows will take, and where the head's part of the sequence begins."""

    origin: int
    """Position of the token at place 0."""
    first_position: int
    """Position of the first of values."""
    values: Tensor
    """Features [n, 3H]."""
    hidden: Tensor = field(default_factory=lambda: torch.empty(0))
    """[1 + nodes, H]: the head's own states of the last token and of the computed nodes that are drafted ahead."""
    draft_states: list[Tensor] = field(default_factory=list)
    """[1, H] each: the states that the verified drafts, all but the last, had when they were drafted."""

    def add(self, first_position: int, values: Tensor) -> bool:
        """Take in features; False and no change where they do not continue those before."""
        if not self.first_position <= first_position <= self.first_position + len(self.values):
            return False
        self.values = torch.cat((self.values[: first_position - self.first_position], values))
        return True

    def covers(self, sequence: EngineSequence) -> bool:
        """Whether there are features for every row up to the last token's."""
        first, end = sequence.num_computed_tokens, len(sequence.tokens)
        return self.first_position < first < end <= self.first_position + len(self.values) + 1

    def next_rows(self, sequence: EngineSequence, num_rows: int) -> tuple[DraftRows, Tensor]:
        """The next rows that are not computed yet, and their states [n, 3H]."""
        first, end = sequence.num_computed_tokens, sequence.num_computed_tokens + num_rows
        states = self.values[first - 1 - self.first_position : end - 1 - self.first_position]
        return DraftRows(first - self.origin, sequence.tokens[first:end], sequence.block_ids), states

    def drop_computed(self, sequence: EngineSequence) -> None:
        """Rows are computed. The feature of the last token's stays: a repeated question asks for it again."""
        first_kept = min(sequence.num_computed_tokens - 1, len(sequence.tokens) - 2)
        num_done = first_kept - self.first_position
        self.values = self.values[num_done:].clone()
        self.first_position += num_done


def window_of(sequence: EngineSequence) -> FeatureWindow:
    assert isinstance(sequence.drafter_state, FeatureWindow), "the sequence has features"
    return sequence.drafter_state
