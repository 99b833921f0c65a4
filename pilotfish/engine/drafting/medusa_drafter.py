"""Medusa heads of a target, in the target's engine (2401.10774, section 2).

Head k guesses the token k + 2 places after a row from the row's hidden state alone, whatever comes between:
the heads need no cache, and one forward of theirs serves all levels of a draft.

Legend: S sequences, H hidden size, V_d draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, grow_drafts
from pilotfish.models.decoder import Decoder
from pilotfish.models.medusa import MedusaHeads
from pilotfish.models.packing import pack_linears
from pilotfish.speculation.draft_vocabulary import DraftVocabulary


class MedusaDrafter:
    """See InTargetDrafter. Takes over the heads; its decoder captures the last hidden state."""

    name = "medusa"

    def __init__(self, decoder: Decoder, heads: MedusaHeads, *, top_m: int) -> None:
        self._decoder = decoder
        self._heads = heads.to(device=decoder.device, dtype=decoder.dtype)
        self._vocabulary = DraftVocabulary(heads.token_map, decoder.vocab_size, top_m=top_m)
        self._top_m = top_m
        self.num_rounds = 0
        if decoder.device.type == "cpu":
            pack_linears(self._heads, deterministic=False)

    def allocate(self, num_blocks: int) -> int:  # noqa: ARG002 -- nothing to keep
        return 0

    @torch.inference_mode()
    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        if not wishes:
            return []
        num_heads = self._heads.config.num_heads
        wanted = [replace(wish, num_draft_tokens=min(wish.num_draft_tokens, num_heads)) for wish in wishes.values()]
        self.num_rounds += 1
        # Who may draft has just been given a token, so the logits of its last row were wanted.
        last_rows = [row for index in wishes if (row := kept[index].last_logit_row) is not None]
        logits = self._heads(self._decoder.last_hidden[last_rows])  # K times [S, V_d]
        level = 0

        def expand(expansions: Sequence[DraftRows]) -> Tensor:
            nonlocal level
            level += 1
            rows = [expansion.wish for expansion in expansions for _ in expansion.token_ids]
            selected: Tensor = logits[level][rows].float()
            return selected

        return grow_drafts(wanted, logits[0].float(), expand, self._vocabulary, top_m=self._top_m)
