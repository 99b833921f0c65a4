"""Attention over StepRows in plain torch: what kernels are compared with, and what stands for them on a CPU.

Nothing is decided on the host, so that it can be recorded.
"""

import torch
from torch import Tensor

from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.attention.rows import TREE_SPAN, StepRows
from pilotfish.types import BLOCK_SIZE

MAX_KEYS = 512
"""Of a sequence."""


class ReferenceBatch:
    """See AttentionBatch."""

    def __init__(self, rows: StepRows) -> None:
        self._rows = rows

    def write_kv(self, pool: Tensor, key: Tensor, value: Tensor) -> None:
        pool.index_copy_(0, self._rows.slots, torch.cat((key, value), dim=1))

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        rows, (num_rows, num_heads) = self._rows, query.shape[:2]
        first, count = rows.pieces[:, 0], rows.pieces[:, 1]
        at = torch.arange(num_rows, device=query.device)
        in_tile = (at[:, None] >= first) & (at[:, None] < first + count)  # [T, P]
        tile = rows.pieces[in_tile.int().argmax(1)]
        keys = torch.arange(MAX_KEYS, device=query.device)
        exists = in_tile.any(1, keepdim=True) & (keys < tile[:, 3:4])  # [T, L]
        places = (tile[:, 2:3] + keys // BLOCK_SIZE).clamp(max=len(rows.block_ids) - 1)
        slots = torch.where(exists, rows.block_ids[places] * BLOCK_SIZE + keys % BLOCK_SIZE, 0)
        key_value = torch.where(exists[:, :, None, None], pool[slots].float(), 0.0)
        key, value = key_value.repeat_interleave(num_heads // shape.num_kv_heads, 2).chunk(2, 2)  # [T, L, H, D]
        behind = keys - rows.places[:, None]
        seen = (behind <= 0) & (rows.positions[:, None] - keys < (shape.sliding_window or 1 << 30))
        bit = rows.ancestors[:, None] >> behind.clamp(0, TREE_SPAN - 1) & 1
        seen |= (behind > 0) & (behind < TREE_SPAN) & (bit == 1)
        seen &= exists & ((keys >= shape.first_key) | (behind == 0))
        scores = torch.einsum("thd,tlhd->htl", query.float(), key) * shape.scale
        if shape.softcap is not None:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
        return torch.einsum("htl,tlhd->thd", weights, value).to(query.dtype).flatten(1)
