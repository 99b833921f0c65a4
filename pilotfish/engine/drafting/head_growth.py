"""Forwards of a feature head over rows of several sequences, and the drafts that it grows.

Legend: T rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.sequence import Drafts
from pilotfish.engine.drafting.draft_growth import Expansion, grow_drafts
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.eagle3.runtime import FeatureHead, HeadOutput, HeadStep
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.trees.tree import DraftTree


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Consecutive rows of one sequence."""

    first_place: int
    """Of the first row in the sequence's blocks."""
    token_ids: Sequence[int]
    states: Tensor
    """[T, 3H] features or [T, H] hidden states, of the tokens before."""
    block_ids: Sequence[int]
    tree: DraftTree | None = None
    """As in SequenceSlice."""


class HeadGrowth:
    """A head and how it drafts. The head's pool is the caller's to divide up."""

    def __init__(self, head: FeatureHead, vocab_size: int, *, top_m: int) -> None:
        self._head = head
        self._vocabulary = DraftVocabulary(head.draft_token_ids, vocab_size)
        self._top_m = top_m
        self.num_rounds = 0
        """Forwards so far."""

    def forward(self, head_rows: Sequence[HeadRows], logit_rows: Sequence[int]) -> HeadOutput:
        """Run the rows of all sequences, which the logit rows count through."""
        token_ids: list[int] = []
        positions: list[int] = []
        slices: list[SequenceSlice] = []
        for rows in head_rows:
            num_rows = len(rows.token_ids)
            slices.append(SequenceSlice(len(token_ids), num_rows, rows.first_place, rows.block_ids, rows.tree))
            token_ids.extend(rows.token_ids)
            positions.extend(slices[-1].positions())
        self.num_rounds += 1
        states = torch.cat([rows.states for rows in head_rows])
        return self._head.forward(HeadStep(token_ids, positions, slices, logit_rows, states))

    def grow(self, wishes: Sequence[DraftWish], output: HeadOutput, last_rows: Sequence[int]) -> list[Drafts]:
        """A draft for each wish, after the forward that ran its last token: row last_rows[i], the i-th logit row."""
        hidden = output.hidden[list(last_rows)]

        def expand(expansions: Sequence[Expansion]) -> Tensor:
            nonlocal hidden
            head_rows = [
                HeadRows(
                    expansion.first_place - wishes[expansion.wish].first_position,
                    expansion.token_ids,
                    hidden[list(expansion.logit_rows)],
                    wishes[expansion.wish].sequence.block_ids,
                    expansion.tree,
                )
                for expansion in expansions
            ]
            output = self.forward(head_rows, range(sum(len(rows.token_ids) for rows in head_rows)))
            hidden = output.hidden
            return output.logits

        return grow_drafts(wishes, output.logits, expand, self._vocabulary, top_m=self._top_m)
