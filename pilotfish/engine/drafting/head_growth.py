"""Forwards of a feature head over rows of several sequences, and the drafts that it grows.

Legend: T rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.drafting.draft_growth import DraftRows, Expansion, grow_drafts, lay_out
from pilotfish.models.eagle3.runtime import FeatureHead, HeadOutput, HeadStep
from pilotfish.speculation.draft_vocabulary import DraftVocabulary


class HeadGrowth:
    """A head and how it drafts. The head's pool is the caller's to divide up."""

    def __init__(self, head: FeatureHead, vocab_size: int, *, top_m: int) -> None:
        self._head = head
        self._vocabulary = DraftVocabulary(head.draft_token_ids, vocab_size)
        self._top_m = top_m
        self.num_rounds = 0
        """Forwards so far."""

    def forward(self, parts: Sequence[DraftRows], states: Tensor, logit_rows: Sequence[int]) -> HeadOutput:
        """Run the rows of all sequences, which the logit rows count through.

        states: [T, 3H] features or [T, H] hidden states, of the tokens before.
        """
        self.num_rounds += 1
        return self._head.forward(HeadStep(*lay_out(parts), logit_rows, states))

    def grow(self, wishes: Sequence[DraftWish], output: HeadOutput, last_rows: Sequence[int]) -> list[Drafts]:
        """A draft for each wish, after the forward that ran its last token: row last_rows[i], the i-th logit row."""
        hidden = output.hidden[list(last_rows)]

        def expand(expansions: Sequence[Expansion]) -> Tensor:
            nonlocal hidden
            parents = [row for expansion in expansions for row in expansion.logit_rows]
            output = self.forward([expansion.rows for expansion in expansions], hidden[parents], range(len(parents)))
            hidden = output.hidden
            return output.logits

        return grow_drafts(wishes, output.logits, expand, self._vocabulary, top_m=self._top_m)
