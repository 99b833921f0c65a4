"""Attention over the static buffers of a shape: what a recorded step calls in place of a step's own AttentionBatch.

Legend: B sequences, Q rows of each, T = B * Q, H query heads, H_kv key/value heads, G = H / H_kv, D head size,
L keys of each sequence (whole blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pilotfish.models.attention.paged import AttentionBatch, AttentionShape, SequenceSlice
from pilotfish.models.attention.tiles import attend_tiles
from pilotfish.models.graphs.rows import StaticRows
from pilotfish.models.graphs.shapes import TREE_SPAN, StepShape
from pilotfish.types import BLOCK_SIZE


class StaticAttention(AttentionBatch, Protocol):
    """The attention of every step of one shape. What attend and write_kv launch depends on the shape alone."""

    @property
    def has_short_window(self) -> bool:
        """Whether a layer's sliding window is so short that it can end within a tree: trees are then for others.

        Known once the layers have run.
        """

    def plan(self, slices: Sequence[SequenceSlice]) -> None:
        """Do what the host does for a step, before the step is replayed."""

    def begin(self) -> None:
        """The layers run from the first again: what was derived from the buffers before is stale."""


class AttentionBackend(Protocol):
    """Prepares AttentionBatches, and what takes their place in a recorded step. Backends differ in speed and rounding,
    not in meaning."""

    name: str

    def prepare(self, slices: Sequence[SequenceSlice], num_rows: int) -> AttentionBatch:
        """Describe a step of num_rows rows, those of the slices and padding after them."""

    def gathers(self, slices: Sequence[SequenceSlice]) -> bool:
        """Whether the keys of these slices are gathered, so that their number is part of the shape."""

    def static(self, rows: StaticRows) -> StaticAttention:
        """The attention over the buffers of a shape."""

    def static_bytes(self, shape: StepShape, num_kinds: int) -> int:
        """Memory of the device that `static` keeps for a shape, for so many kinds of layers; the rows excepted."""


class StaticSdpa:
    """A StaticAttention on torch's scaled_dot_product_attention over gathered keys, trees included."""

    def __init__(self, rows: StaticRows) -> None:
        self._rows = rows
        self.has_short_window = False
        self._masks: dict[tuple[int | None, int], Tensor] = {}

    def plan(self, slices: Sequence[SequenceSlice]) -> None:
        """Everything is in the buffers."""

    def begin(self) -> None:
        self._masks.clear()

    def write_kv(self, pool: Tensor, key_value: Tensor) -> None:
        pool.index_copy_(0, self._rows.slots, key_value)

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        batch, num_kv, dim = self._rows.shape.num_sequences, shape.num_kv_heads, shape.head_dim
        blocks = pool.view(-1, BLOCK_SIZE * 2 * num_kv * dim).index_select(0, self._rows.block_table)
        mask = self._mask(query.shape[1] // num_kv, shape, query.dtype)
        return attend_tiles(query, blocks.view(batch, -1, 2, num_kv, dim), mask, shape)

    def _mask(self, group_size: int, shape: AttentionShape, dtype: torch.dtype) -> Tensor:
        """[B, 1, Q * G, L] additive: 0 where row sees key, -inf elsewhere; one per kind of layer and run."""
        assert shape.first_key == 0, "models have no such keys; heads do"
        kind = (shape.sliding_window, group_size)
        self.has_short_window |= shape.sliding_window is not None and shape.sliding_window < TREE_SPAN
        mask = self._masks.get(kind)
        if mask is None:
            visible = visible_keys(self._rows, shape.sliding_window)
            additive = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
            additive = additive.masked_fill_(~visible, float("-inf"))
            step = self._rows.shape
            additive = additive.view(step.num_sequences, 1, step.rows_each, -1)
            mask = self._masks[kind] = additive.repeat_interleave(group_size, dim=2)
        return mask


def visible_keys(rows: StaticRows, sliding_window: int | None) -> Tensor:
    """bool [T, L]: whether a row sees the key at a place of its sequence.

    sliding_window: at least TREE_SPAN where a row belongs to a tree.
    """
    num_keys = rows.shape.num_key_blocks * BLOCK_SIZE
    keys = torch.arange(num_keys, device=rows.places.device)
    behind = keys - rows.places[:, None]
    in_text = behind <= 0
    if sliding_window is not None:
        in_text &= rows.positions[:, None] - keys < sliding_window
    is_ancestor = (rows.ancestors[:, None] >> behind.clamp(0, TREE_SPAN - 1) & 1).bool()
    return in_text | (is_ancestor & (behind > 0) & (behind < TREE_SPAN))
