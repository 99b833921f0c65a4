"""The Medusa heads of a target, in the target's engine (2401.10774, section 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotfish.drafters.medusa.head import MedusaHead
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, HeadGrowth
from pilotfish.models.decoder import Decoder


class MedusaDrafter:
    """See InTargetDrafter. Its decoder captures the last hidden state."""

    name = "medusa"

    def __init__(self, decoder: Decoder, head: MedusaHead, *, top_m: int) -> None:
        self._decoder = decoder
        self._head = head
        self.max_draft_tokens = head.max_draft_tokens
        self._growth = HeadGrowth(head, decoder.vocab_size, top_m=top_m)

    @property
    def num_rounds(self) -> int:
        return self._growth.num_rounds

    def allocate(self, num_blocks: int) -> int:
        return self._head.allocate(num_blocks).num_bytes

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        if not wishes:
            return []
        parts = [_last_row(wish) for wish in wishes.values()]
        states = self._decoder.features[[kept[index].step_rows[-1] for index in wishes]]
        output = self._growth.forward(parts, states, range(len(parts)))
        return self._growth.grow(list(wishes.values()), output)


def _last_row(wish: DraftWish) -> DraftRows:
    tokens = wish.sequence.tokens
    return DraftRows(len(tokens) - 1, tokens[-1:], wish.sequence.block_ids)
