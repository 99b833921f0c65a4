"""Paged attention: what one step computes, described once and used by every layer.

Legend: S sequences in the step, T rows (tokens) of the step, H query heads, H_kv key/value heads,
G = H / H_kv, D head size, L key length in tokens (whole blocks).
A layer's KV pool is one tensor [num_blocks * BLOCK_SIZE, 2 * H_kv, D]: a slot's keys, then its values.
Block 0 is never given to a sequence: rows that only pad the step write there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import BLOCK_SIZE


class SequenceSlice(msgspec.Struct, frozen=True):
    """The consecutive rows that one sequence has in a step.

    A struct, because each step makes one a sequence: a frozen dataclass takes ten times as long.
    """

    first_row: int
    num_rows: int
    first_position: int
    """Place of the first row in the sequence's blocks: tokens before it are in the KV cache. Its position too,
    unless it is a tree's node."""
    block_ids: Sequence[int]
    """The sequence's blocks, at least enough for its last row."""
    tree: DraftTree | None = None
    """The places up to the last row's are the nodes of this tree, in order; the place before them is its root's.
    Nodes before the first row are in the KV cache. A node's position is its root's plus its depth, and it sees
    what is before the root, the root, its ancestors and itself. None: each row sees all before it."""

    @property
    def places(self) -> range:
        """Places of the rows in the sequence's blocks."""
        return range(self.first_position, self.first_position + self.num_rows)

    @property
    def root_position(self) -> int:
        """Position of the tree's root."""
        return self.first_position + self.num_rows - 1 - (0 if self.tree is None else len(self.tree))

    def sight(self) -> tuple[Sequence[int], Sequence[int]]:
        """For each row the last key in the order of the text that it sees, its own or that of its tree's root, and a
        mask: bit d says whether it sees the key d places behind that; bit 0 is always set. See
        DraftTree.ancestor_masks."""
        if self.tree is None or self.tree.is_chain:
            return self.places, (1,) * self.num_rows
        root, masks = self.root_position, self.tree.ancestor_masks
        return [min(place, root) for place in self.places], [masks[max(0, place - root)] for place in self.places]

    def positions(self) -> list[int]:
        """Position of each row in its text: what rotary embeddings go by."""
        if self.tree is None:
            return list(self.places)
        root, depths = self.root_position, self.tree.depths
        return [place if place <= root else root + depths[place - root - 1] for place in self.places]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What differs between layers and models."""

    num_kv_heads: int
    head_dim: int
    scale: float
    sliding_window: int | None = None
    """Tokens a row sees, its own included; None sees all before it."""
    softcap: float | None = None
    """Scores become softcap * tanh(scores / softcap) (Gemma 2)."""
    first_key: int = 0
    """Keys at positions before it are seen by nobody but their own row."""
    sinks: Tensor | None = field(default=None, compare=False)
    """[H] what each head's softmax has beside the scores of the keys, without a value (gpt-oss)."""


class AttentionBatch(Protocol):
    """The attention of one step, prepared once and applied by every layer."""

    def write_kv(self, pool: Tensor, key: Tensor, value: Tensor) -> None:
        """Store the rows' keys and values, [T, H_kv, D] each, in their slots of the layer's pool."""

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        """Attention of query [T, H, D] over the pool; returns [T, H * D], finite for rows of no slice."""


def slot_mapping(slices: Sequence[SequenceSlice], num_rows: int) -> Tensor:
    """KV slot of every row, [T] int64; rows of no slice map to slot 0 of block 0."""
    slots = [0] * num_rows
    for part in slices:
        slots[part.first_row : part.first_row + part.num_rows] = slots_of(part.block_ids, part.places)
    return torch.tensor(slots, dtype=torch.int64)


def slots_of(block_ids: Sequence[int], places: Iterable[int]) -> list[int]:
    """Where keys and values of a sequence's places lie: see Decoder.move_kv."""
    return [block_ids[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for place in places]
