"""The target's own first layers as its drafter (LayerSkip, 2404.16710, section 4.2).

What they write for a draft lies where verification writes it again: the drafter needs no cache of its own
and has nothing to keep in step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.sequence import NO_DRAFTS, Drafts
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import Expansion, grow_drafts, last_token
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.speculation.draft_vocabulary import DraftVocabulary


class EarlyExitDrafter:
    """See InTargetDrafter."""

    name = "early_exit"

    def __init__(self, decoder: Decoder, exit_layer: int, *, top_m: int) -> None:
        """exit_layer: layers that draft."""
        self._decoder = decoder
        self.exit_layer = exit_layer
        self._vocabulary = DraftVocabulary(torch.arange(decoder.vocab_size, device=decoder.device), decoder.vocab_size)
        self._top_m = top_m
        self.num_rounds = 0

    def allocate(self, num_blocks: int) -> int:  # noqa: ARG002 -- it shares the target's
        return 0

    @torch.inference_mode()
    def follow(self, kept: Sequence[KeptRows], wishes: Sequence[DraftWish | None]) -> list[Drafts]:
        drafts = [NO_DRAFTS] * len(kept)
        drafting = {index: wish for index, wish in enumerate(wishes) if wish is not None}
        if not drafting:
            return drafts
        wanted = list(drafting.values())

        def expand(expansions: Sequence[Expansion]) -> Tensor:
            token_ids: list[int] = []
            positions: list[int] = []
            slices: list[SequenceSlice] = []
            for expansion in expansions:
                slices.append(expansion.slice(len(token_ids), wanted[expansion.wish].sequence.block_ids))
                token_ids.extend(expansion.token_ids)
                positions.extend(slices[-1].positions())
            self.num_rounds += 1
            step = StepInput(token_ids, positions, slices, range(len(token_ids)), self.exit_layer)
            return self._decoder.forward(step).float()

        logits = expand([last_token(wish, index) for index, wish in enumerate(wanted)])
        grown = grow_drafts(wanted, logits, expand, self._vocabulary, top_m=self._top_m)
        for index, drafted in zip(drafting, grown, strict=True):
            drafts[index] = drafted
        return drafts
