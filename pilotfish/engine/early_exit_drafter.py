"""The target's own first layers as its drafter (LayerSkip, 2404.16710, section 4.2).

What they write for a draft lies where verification writes it again: the drafter needs no cache of its own
and has nothing to keep in step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.engine.chain_growth import DraftWish, grow_chains
from pilotfish.engine.self_drafting import KeptRows
from pilotfish.engine.sequence import NO_DRAFTS, Drafts
from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.speculation.draft_vocabulary import DraftVocabulary


class EarlyExitDrafter:
    """See SelfDrafter."""

    name = "early_exit"

    def __init__(self, decoder: Decoder, exit_layer: int, *, top_m: int) -> None:
        """exit_layer: layers that draft."""
        self._decoder = decoder
        self._exit_layer = exit_layer
        self._vocabulary = DraftVocabulary(torch.arange(decoder.vocab_size), decoder.vocab_size)
        self._top_m = top_m

    def allocate(self, num_blocks: int) -> int:  # noqa: ARG002 -- it shares the target's
        return 0

    @torch.inference_mode()
    def follow(self, kept: Sequence[KeptRows]) -> list[Drafts]:
        drafts = [NO_DRAFTS] * len(kept)
        drafting = [index for index, rows in enumerate(kept) if rows.num_draft_tokens]
        if not drafting:
            return drafts
        wishes = [DraftWish(kept[index].sequence, kept[index].num_draft_tokens) for index in drafting]

        def next_logits(active: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Tensor:
            slices = [
                SequenceSlice(row, 1, position, wishes[index].sequence.block_ids)
                for row, (index, position) in enumerate(zip(active, positions, strict=True))
            ]
            step = StepInput(token_ids, positions, slices, range(len(active)), self._exit_layer)
            return self._decoder.forward(step).float()

        last_token_ids = [wish.sequence.tokens[-1] for wish in wishes]
        positions = [len(wish.sequence.tokens) - 1 for wish in wishes]
        logits = next_logits(range(len(wishes)), last_token_ids, positions)
        chains = grow_chains(wishes, logits, next_logits, self._vocabulary, top_m=self._top_m)
        for index, chain in zip(drafting, chains, strict=True):
            drafts[index] = chain
        return drafts
