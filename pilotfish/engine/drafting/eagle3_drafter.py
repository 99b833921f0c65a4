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

_MANY_ROWS = 64
"""Of a step with a prefill, whose features are megabytes."""


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
        self._keep_features(kept)
        due = [index for index, rows in enumerate(kept) if index in wishes or _fills_a_block(rows)]
        if not due:
            return []
        parts, states = self._take_in([(kept[index], index in wishes) for index in due])
        ends = accumulate(len(rows.token_ids) for rows in parts)
        last_rows = [end - 1 for index, end in zip(due, ends, strict=True) if index in wishes]
        output = self._growth.forward(parts, states, last_rows)
        return self._growth.grow(list(wishes.values()), output, last_rows) if wishes else []

    def _keep_features(self, kept: Sequence[KeptRows]) -> None:
        """Take the rows' features from the decoder, in one copy."""
        step_rows = [row for rows in kept for row in rows.step_rows]
        index = to_device(step_rows, torch.int64, self._decoder.features.device)
        features = self._decoder.features.index_select(0, index)
        for rows, own in zip(kept, torch.split(features, [len(rows.step_rows) for rows in kept]), strict=True):
            if len(step_rows) > _MANY_ROWS:
                own = own.clone()  # of a prefill's step, what others need is not kept alive by what waits here
            pending = rows.sequence.drafter_state
            if isinstance(pending, _Pending) and pending.end_position == rows.first_position:
                pending.features.append(own)
            else:
                rows.sequence.drafter_state = _Pending(rows.first_position, [own])

    def _take_in(self, due: Sequence[tuple[KeptRows, bool]]) -> tuple[list[DraftRows], Tensor]:
        """Rows for all pending features, and their states [T, 3H]. Of each sequence whether the row of its last token,
        which a draft follows, is among them."""
        parts: list[DraftRows] = []
        pieces: list[Tensor] = []
        wanted: list[int] = []
        last_rows: list[int] = []
        last_blocks: list[int] = []
        num_rows = 0
        for rows, with_last in due:
            sequence, pending = rows.sequence, rows.sequence.drafter_state
            assert isinstance(pending, _Pending)
            first, end, start = pending.first_position, pending.end_position, num_rows
            if first > 0:
                block_before = sequence.block_ids[(first - 1) // BLOCK_SIZE]
                pieces.append(self._last_features[block_before : block_before + 1])
                num_rows += 1
            pieces.extend(pending.features)
            for block in range(first // BLOCK_SIZE, (end - 1) // BLOCK_SIZE + 1):
                last_blocks.append(sequence.block_ids[block])
                last_rows.append(num_rows + min((block + 1) * BLOCK_SIZE, end) - 1 - first)
            num_rows += end - first
            sequence.drafter_state = _Pending(end, [])
            first = max(first, FIRST_KEY)
            token_ids = sequence.tokens[first : end + 1 if with_last else end]
            parts.append(DraftRows(first, token_ids, sequence.block_ids))
            wanted.extend(range(start, start + len(token_ids)))
        features = torch.cat(pieces)
        blocks, taken_in, index = (
            to_device(values, torch.int64, features.device) for values in (last_blocks, last_rows, wanted)
        )
        self._last_features.index_copy_(0, blocks, features.index_select(0, taken_in).to(self._last_features.dtype))
        return parts, features.index_select(0, index)


def _fills_a_block(rows: KeptRows) -> bool:
    """Whether the sequence's pending features reach the end of one."""
    pending = rows.sequence.drafter_state
    assert isinstance(pending, _Pending)
    return pending.first_position // BLOCK_SIZE < pending.end_position // BLOCK_SIZE
