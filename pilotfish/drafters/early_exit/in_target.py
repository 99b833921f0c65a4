"""A target's first layers as its drafter.

What they write for a draft lies in the target's own slots, where verification writes the same again: there is no cache
to keep in step but that of a trained block, which takes in the hidden states of every step.

Legend: T rows, R rows whose logits are wanted, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, grow_drafts, lay_out
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.sampling.transfer import to_device


class Exit(Protocol):
    """The first layers of a decoder and what follows them, over the decoder's own pool. Not thread-safe."""

    draft_token_ids: Tensor
    """int64 [Vd]: the target's token id of each draft token."""
    is_trained: bool
    """Whether a block with a cache of its own follows the layers."""

    def allocate(self, num_blocks: int) -> int:
        """Make room for num_blocks blocks of the block's cache, after the decoder's pool has changed; its bytes."""

    def forward(self, step: StepInput) -> Tensor:
        """Run the rows, write their keys and values: logits float32 [R, Vd], overwritten by the next forward."""

    def take_in(self, step: StepInput, states: Tensor) -> None:
        """Write the block's keys and values of rows that the target has computed. states: [T, H] before the block."""


class EarlyExitDrafter:
    """See InTargetDrafter. For a trained exit its decoder captures what enters the next layer."""

    name = "early_exit"
    max_draft_tokens: int | None = None

    def __init__(self, decoder: Decoder, way_out: Exit, *, top_m: int) -> None:
        self._decoder = decoder
        self._exit = way_out
        self._vocabulary = DraftVocabulary(way_out.draft_token_ids, decoder.vocab_size, top_m=top_m)
        self._top_m = top_m
        self.num_rounds = 0

    def allocate(self, num_blocks: int) -> int:
        return self._exit.allocate(num_blocks)

    @torch.inference_mode()
    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        if self._exit.is_trained:
            self._take_in(kept)
        if not wishes:
            return []
        sequences = [wish.sequence for wish in wishes.values()]
        last = [DraftRows(len(each.tokens) - 1, each.tokens[-1:], each.block_ids) for each in sequences]
        return grow_drafts(list(wishes.values()), self._run(last), self._run, self._vocabulary, top_m=self._top_m)

    def _run(self, parts: Sequence[DraftRows]) -> Tensor:
        self.num_rounds += 1
        token_ids, positions, slices = lay_out(parts)
        return self._exit.forward(StepInput(token_ids, positions, slices, range(len(token_ids))))

    def _take_in(self, kept: Sequence[KeptRows]) -> None:
        parts = [
            DraftRows(
                rows.first_position,
                rows.sequence.tokens[rows.first_position : rows.end_position],
                rows.sequence.block_ids,
            )
            for rows in kept
        ]
        step_rows = [row for rows in kept for row in rows.step_rows]
        features = self._decoder.features
        states = features.index_select(0, to_device(step_rows, torch.int64, features.device))
        self._exit.take_in(StepInput(*lay_out(parts), ()), states)
