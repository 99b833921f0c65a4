"""The target's own first layers as its drafter (LayerSkip, 2404.16710, section 4.2).

What they write for a draft lies where verification writes it again: the drafter needs no cache of its own
and has nothing to keep in step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, grow_drafts, lay_out
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
    def follow(
        self,
        kept: Sequence[KeptRows],  # noqa: ARG002 -- verification writes the same
        wishes: Mapping[int, DraftWish],
    ) -> list[Drafts]:
        wanted = list(wishes.values())
        if not wanted:
            return []

        sequences = [wish.sequence for wish in wanted]
        last = [DraftRows(len(one.tokens) - 1, one.tokens[-1:], one.block_ids) for one in sequences]
        return grow_drafts(wanted, self._forward(last), self._forward, self._vocabulary, top_m=self._top_m)

    def _forward(self, parts: Sequence[DraftRows]) -> Tensor:
        """Logits float32 [R, V] after each of the rows."""
        self.num_rounds += 1
        token_ids, positions, slices = lay_out(parts)
        step = StepInput(token_ids, positions, slices, range(len(token_ids)), self.exit_layer)
        return self._decoder.forward(step).float()
