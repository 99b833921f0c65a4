"""The EAGLE-3 head of a target, in the target's engine.

The head's keys and values follow the target's: slot q holds the row of the token at q, which takes the
feature of q - 1. Rows wait until a block is full or a draft is wanted, so that a sequence that does not
speculate pays for one forward of the head every BLOCK_SIZE tokens. The feature of the last position so
taken in is kept by block: a prefix found in the cache goes on from there.

Legend: T rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, HeadGrowth
from pilotfish.models.decoder import Decoder
from pilotfish.models.eagle3.runtime import FIRST_KEY, FeatureHead
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import BLOCK_SIZE


@dataclass(slots=True)
class _Pending:
    """Features that the head has not seen: of the positions from first_position on."""

    first_position: int
    features: list[Tensor]
    """[n, 3H] each."""

    @property
    def end_position(self) -> int:
        return self.first_position + sum(map(len, self.features))


class Eagle3Drafter:
    """See InTargetDrafter. Its decoder captures the layers that the head was trained on."""

    name = "eagle3"

    def __init__(self, decoder: Decoder, head: FeatureHead, *, top_m: int) -> None:
        self._decoder = decoder
        self._head = head
        self._growth = HeadGrowth(head, decoder.vocab_size, top_m=top_m)
        self._last_features = torch.empty(0)
        """[num_blocks, 3H]: of the last position in each block that the head has taken in."""

    @property
    def num_rounds(self) -> int:
        return self._growth.num_rounds

    def allocate(self, num_blocks: int) -> int:
        self._last_features = torch.zeros(
            num_blocks, self._head.feature_width, dtype=self._decoder.dtype, device=self._decoder.device
        )
        return self._head.allocate(num_blocks).num_bytes + self._last_features.nbytes

    @torch.inference_mode()
    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        due = [index for index, rows in enumerate(kept) if self._keep_features(rows) or index in wishes]
        if not due:
            return []
        taken_in = [self._take_in(kept[index], with_last=index in wishes) for index in due]
        ends = accumulate(len(rows.token_ids) for rows, _ in taken_in)
        last_rows = [end - 1 for index, end in zip(due, ends, strict=True) if index in wishes]
        states = torch.cat([states for _, states in taken_in])
        output = self._growth.forward([rows for rows, _ in taken_in], states, last_rows)
        return self._growth.grow(list(wishes.values()), output, last_rows) if wishes else []

    def _keep_features(self, rows: KeptRows) -> bool:
        """Take the rows' features from the decoder. Whether they fill a block."""
        sequence = rows.sequence
        step_rows = to_device(list(rows.step_rows), torch.int64, self._decoder.features.device)
        features = self._decoder.features.index_select(0, step_rows)
        pending = sequence.drafter_state
        if isinstance(pending, _Pending) and pending.end_position == rows.first_position:
            pending.features.append(features)
        else:
            pending = sequence.drafter_state = _Pending(rows.first_position, [features])
        return pending.first_position // BLOCK_SIZE < pending.end_position // BLOCK_SIZE

    def _take_in(self, rows: KeptRows, *, with_last: bool) -> tuple[DraftRows, Tensor]:
        """Rows for all pending features, and their states [T, 3H]; with_last: also the one of the last token, which a
        draft follows."""
        sequence, pending = rows.sequence, rows.sequence.drafter_state
        assert isinstance(pending, _Pending)
        first, end = pending.first_position, pending.end_position
        features = torch.cat(pending.features)
        states = features
        if first > 0:
            before = self._last_features[sequence.block_ids[(first - 1) // BLOCK_SIZE]]
            states = torch.cat((before.unsqueeze(0), features))
        blocks = range(first // BLOCK_SIZE, (end - 1) // BLOCK_SIZE + 1)
        last_rows = [min((block + 1) * BLOCK_SIZE, end) - 1 - first for block in blocks]
        device = features.device
        block_ids = to_device([sequence.block_ids[block] for block in blocks], torch.int64, device)
        taken_in = features.index_select(0, to_device(last_rows, torch.int64, device))
        self._last_features.index_copy_(0, block_ids, taken_in.to(self._last_features.dtype))
        sequence.drafter_state = _Pending(end, [])
        first = max(first, FIRST_KEY)
        token_ids = sequence.tokens[first : end + 1 if with_last else end]
        return DraftRows(first, token_ids, sequence.block_ids), states[: len(token_ids)]
