"""Rows of a step in tiles: rows of one sequence that share their keys in one call of attention; and that call.

Legend: Q rows of a tile, L keys of a tile (whole blocks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from pilotfish.models.attention.paged import AttentionShape, SequenceSlice
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class Tile:
    """Consecutive rows of a text over its keys, or nodes of a tree over the keys of all of them."""

    rows: Sequence[int]
    """[Q] rows of the step."""
    positions: Sequence[int]
    """[Q]"""
    block_ids: Sequence[int]
    """Blocks that hold the keys."""
    root_position: int
    path: Sequence[int] = ()
    """Places of the keys from position root_position + 1 on, which lie between those of other nodes."""
    tree: DraftTree | None = None
    """The nodes that lie behind the root's place; None: keys lie in the order of the text, but for `path`."""
    nodes: Sequence[int] = ()
    """[Q] the node of each row, the root's -1."""

    @property
    def num_keys(self) -> int:
        """Keys up to the last that a row sees."""
        if self.tree is not None:
            return self.root_position + 1 + len(self.tree)
        return self.positions[-1] + 1

    def slots(self, num_keys: int) -> Tensor:
        """[num_keys] int64: where the keys lie, in the order of the text; then slot 0."""
        blocks = torch.tensor(self.block_ids, dtype=torch.int64)
        places = torch.cat((torch.arange(self.root_position + 1), torch.tensor(self.path, dtype=torch.int64)))
        slots = torch.zeros(num_keys, dtype=torch.int64)
        slots[: len(places)] = blocks[places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE
        return slots

    def hidden_keys(self, num_keys: int) -> Tensor:
        """bool [Q, num_keys]: keys of nodes that are not the row's ancestors."""
        hidden = torch.zeros(len(self.rows), num_keys, dtype=torch.bool)
        if self.tree is not None:
            for index, node in enumerate(self.nodes):
                mask = self.tree.ancestor_masks[node + 1]
                seen = [mask >> bit & 1 == 1 for bit in range(1, len(self.tree) + 1)]
                hidden[index, self.root_position + 1 : self.num_keys] = ~torch.tensor(seen)
        return hidden

    def key_positions(self, num_keys: int) -> Tensor:
        """[num_keys] int64: the position of each key in its text."""
        positions = torch.arange(num_keys)
        if self.tree is not None:
            depths = torch.tensor(self.tree.depths, dtype=torch.int64)
            positions[self.root_position + 1 : self.num_keys] = self.root_position + depths
        return positions


def cut_into_tiles(part: SequenceSlice, max_rows: int, *, by_path: bool) -> Iterator[Tile]:
    """Tiles of at most max_rows rows that cover the slice.

    by_path: a tree's nodes go in runs down one path each, with the keys of that path alone in the order
    of its text, as if it had been decoded token by token; else they share a call over all nodes' keys.
    """
    if part.tree is None:
        yield from _pieces(_text_tile(part, part.num_rows), max_rows)
        return
    num_in_text = max(0, part.root_position + 1 - part.first_position)
    if num_in_text:
        yield from _pieces(_text_tile(part, num_in_text), max_rows)
    runs = _paths(part) if by_path else _whole_tree(part)
    for run in runs:
        yield from _pieces(run, max_rows)


def _text_tile(part: SequenceSlice, num_rows: int) -> Tile:
    rows = range(part.first_row, part.first_row + num_rows)
    positions = range(part.first_position, part.first_position + num_rows)
    return Tile(rows, positions, part.block_ids, positions[-1])


def _whole_tree(part: SequenceSlice) -> Iterator[Tile]:
    assert part.tree is not None
    root = part.root_position
    nodes = range(max(0, part.first_position - root - 1), len(part.tree))
    rows = [part.first_row + root + 1 + node - part.first_position for node in nodes]
    positions = [root + part.tree.depths[node] for node in nodes]
    yield Tile(rows, positions, part.block_ids, root, tree=part.tree, nodes=nodes)


def _paths(part: SequenceSlice) -> Iterator[Tile]:
    """A run of rows for each leaf: those on its path that no earlier run has."""
    assert part.tree is not None
    root, tree = part.root_position, part.tree
    next_node = max(0, part.first_position - root - 1)  # earlier ones are in the KV cache
    covered = set(range(next_node))
    for node in range(next_node, len(tree)):
        if tree.children[node + 1]:
            continue
        path = tree.paths[node + 1]
        run = [ancestor for ancestor in path if ancestor not in covered]
        covered.update(run)
        rows = [part.first_row + root + 1 + ancestor - part.first_position for ancestor in run]
        positions = range(root + 1 + len(path) - len(run), root + 1 + len(path))
        yield Tile(rows, positions, part.block_ids, root, path=[root + 1 + ancestor for ancestor in path])


def _pieces(tile: Tile, max_rows: int) -> Iterator[Tile]:
    for start in range(0, len(tile.rows), max_rows):
        end = start + max_rows
        positions = tile.positions[start:end]
        yield replace(
            tile,
            rows=tile.rows[start:end],
            positions=positions,
            root_position=min(tile.root_position, positions[-1]),
            path=tile.path[: max(0, positions[-1] - tile.root_position)],
            nodes=tile.nodes[start:end],
        )


def attend_tiles(query: Tensor, key_value: Tensor, mask: Tensor, shape: AttentionShape) -> Tensor:
    """Attention of N tiles of Q rows, each over L keys of its own; returns [N * Q, H * D].

    query: [N * Q, H, D]. key_value: [N, L, 2, H_kv, D]. mask: broadcasts to [N, H_kv, Q * G, L], and is added; G
    query heads share a key head.
    """
    num_tiles, _, _, num_kv, dim = key_value.shape
    num_heads = query.shape[1]
    group_size = num_heads // num_kv
    key, value = key_value[:, :, 0].transpose(1, 2), key_value[:, :, 1].transpose(1, 2)  # [N, H_kv, L, D]
    folded = query.view(num_tiles, -1, num_kv, group_size, dim).transpose(1, 2)
    folded = folded.reshape(num_tiles, num_kv, -1, dim)  # [N, H_kv, Q * G, D]
    if shape.sinks is not None:
        # One more key, of zeros: its score is the sink, and its value adds nothing.
        key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
        sinks = shape.sinks.to(mask.dtype).view(num_kv, 1, group_size).expand(-1, folded.shape[2] // group_size, -1)
        sinks = sinks.reshape(1, num_kv, -1, 1).expand(num_tiles, -1, -1, -1)
        mask = torch.cat((mask.expand(-1, num_kv, -1, -1), sinks), dim=-1)
    if shape.softcap is None:
        output = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=shape.scale)
    else:
        scores = torch.matmul(folded, key.transpose(-1, -2)).float() * shape.scale
        scores = shape.softcap * torch.tanh(scores / shape.softcap) + mask
        output = torch.matmul(scores.softmax(-1).to(value.dtype), value)
    output = output.view(num_tiles, num_kv, -1, group_size, dim).transpose(1, 2)
    return output.reshape(-1, num_heads * dim)
