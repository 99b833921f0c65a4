"""The EAGLE-3 head of a target, in the target's engine.

The head's keys and values follow the target's: slot q holds the row of the token at q, which takes the
feature of q - 1. Rows wait until a block is full or a draft is wanted, so that a sequence that does not
speculate pays for one forward of the head every BLOCK_SIZE tokens. The feature of the last position so
taken in is kept by block: a prefix found in the cache goes on from there.

Legend: T rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, HeadGrowth
from pilotfish.models.decoder import Decoder
from pilotfish.models.feature_head import FIRST_KEY, FeatureHead
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import BLOCK_SIZE

_MANY_ROWS = 64
"""Rows of a step above which kept features are copied: a view would keep those of the whole step in memory."""


@dataclass(slots=True)
class _Pending:
    """Features of earlier steps that the head has not seen, those of the positions from first_position on."""

    first_position: int
    features: list[Tensor] = field(default_factory=list)
    """[n, 3H] each."""

    @property
    def end_position(self) -> int:
        return self.first_position + sum(map(len, self.features))


class Eagle3Drafter:
    """See InTargetDrafter. Its decoder captures the layers that the head was trained on."""

    name = "eagle3"
    max_draft_tokens: int | None = None

    def __init__(self, decoder: Decoder, head: FeatureHead, *, top_m: int) -> None:
        self._decoder = decoder
        self.head = head
        self._growth = HeadGrowth(head, decoder.vocab_size, top_m=top_m)
        self._last_features = torch.empty(0)
        """[num_blocks, 3H]: of the last position in each block that the head has taken in."""

    @property
    def num_rounds(self) -> int:
        return self._growth.num_rounds

    def allocate(self, num_blocks: int) -> int:
        self._last_features = torch.zeros(
            num_blocks, self.head.feature_width, dtype=self._decoder.dtype, device=self._decoder.device
        )
        return self.head.allocate(num_blocks).num_bytes + self._last_features.nbytes

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        due: list[tuple[KeptRows, _Pending, bool]] = []
        waiting: list[tuple[KeptRows, _Pending]] = []
        for index, rows in enumerate(kept):
            pending = rows.sequence.drafter_state
            if not isinstance(pending, _Pending) or pending.end_position != rows.first_position:
                pending = rows.sequence.drafter_state = _Pending(rows.first_position)
            fills_a_block = pending.first_position // BLOCK_SIZE < rows.end_position // BLOCK_SIZE
            if index in wishes or fills_a_block:
                due.append((rows, pending, index in wishes))
            else:
                waiting.append((rows, pending))
        if waiting:
            self._keep(waiting)
        if not due:
            return []
        parts, states = self._take_in(due)
        ends = accumulate(len(rows.token_ids) for rows in parts)
        last_rows = [end - 1 for end, (_, _, is_wanted) in zip(ends, due, strict=True) if is_wanted]
        output = self._growth.forward(parts, states, last_rows)
        return self._growth.grow(list(wishes.values()), output) if wishes else []

    def _keep(self, waiting: Sequence[tuple[KeptRows, _Pending]]) -> None:
        """Copy the features that wait for more, of less than a block each, from the decoder."""
        index = [row for rows, _ in waiting for row in rows.step_rows]
        features = self._decoder.features.index_select(0, to_device(index, torch.int64, self._decoder.device))
        lengths = [len(rows.step_rows) for rows, _ in waiting]
        for (_, pending), own in zip(waiting, features.split_with_sizes(lengths), strict=True):
            # Of a large step, what others need is not kept alive by what waits here.
            pending.features.append(own.clone() if len(index) > _MANY_ROWS else own)

    def _take_in(self, due: Sequence[tuple[KeptRows, _Pending, bool]]) -> tuple[list[DraftRows], Tensor]:
        """Rows for all pending features, and their states [T, 3H]. Of each sequence whether the row of its last token,
        which a draft follows, is among them."""
        parts: list[DraftRows] = []
        pieces = [self._decoder.features, self._last_features]  # of this step; before the pending ones; of steps before
        num_rows = len(pieces[0]) + len(due)
        blocks_before: list[int] = []
        last_blocks: list[int] = []
        wanted: list[int] = []
        last_rows: list[int] = []
        for place, (rows, pending, with_last) in enumerate(due):
            sequence, first, end = rows.sequence, pending.first_position, rows.end_position
            num_older = rows.first_position - first
            # Of the positions from first - 1 on, the rows of the pieces.
            sources = [len(pieces[0]) + place, *range(num_rows, num_rows + num_older), *rows.step_rows]
            num_rows += num_older
            pieces.extend(pending.features)
            blocks_before.append(sequence.block_ids[max(0, first - 1) // BLOCK_SIZE])
            for block in range(first // BLOCK_SIZE, (end - 1) // BLOCK_SIZE + 1):
                last_blocks.append(sequence.block_ids[block])
                last_rows.append(sources[min((block + 1) * BLOCK_SIZE, end) - first])
            start = max(first, FIRST_KEY)
            token_ids = sequence.tokens[start : end + 1 if with_last else end]
            parts.append(DraftRows(start, token_ids, sequence.block_ids))
            wanted.extend(sources[start - first : start - first + len(token_ids)])
            pending.first_position = end
            pending.features = []
        index = to_device(blocks_before + last_blocks + wanted + last_rows, torch.int64, self._decoder.device)
        before, last, taken = index.split_with_sizes([len(due), len(last_blocks), len(wanted) + len(last_rows)])
        pieces[1] = self._last_features.index_select(0, before)
        features = torch.cat(pieces).index_select(0, taken)
        self._last_features.index_copy_(0, last, features[len(wanted) :].to(self._last_features.dtype))
        return parts, features[: len(wanted)]
