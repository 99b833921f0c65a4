"""Paged attention on torch's scaled_dot_product_attention: runs everywhere.

Keys are gathered in whole blocks and queries go in tiles. Why tiles: on CPU, SDPA rounds a row
the same way only while a call has MIN_TILE_ROWS to MAX_TILE_ROWS query rows per key head,
an explicit mask and a key length that is a multiple of KEY_SPLIT, the block of keys SDPA works in: in a
shorter one the matrix product may sum in another order (measured on Intel AMX and AMD Zen 4 machines;
`models/determinism.py` probes it). Grouped-query heads are folded into the query rows, so
keys are never repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pilotfish.models.attention.paged import AttentionShape, SequenceSlice, slot_mapping
from pilotfish.models.attention.tiles import Tile, attend_tiles, cut_into_tiles
from pilotfish.speculation.sampling.transfer import moved
from pilotfish.types import BLOCK_SIZE

MIN_TILE_ROWS = 4
MAX_TILE_ROWS = 32
KEY_SPLIT = 512


@dataclass(slots=True)
class _Group:
    """Tiles of like size, run in one call: N tiles of Q rows over L keys."""

    rows: Tensor
    """[N * Q] int64: row of the step in each place; short tiles repeat their last row."""
    positions: Tensor
    """[N, Q] int64."""
    keys: Tensor
    """int64: the blocks [N * L / BLOCK_SIZE] that hold the keys, filled up with block 0; or their slots [N * L]."""
    are_slots: bool
    num_tiles: int
    places: Tensor
    """[num valid rows] int64: which of the N * Q places hold a row, in the order of `targets`."""
    targets: Tensor
    """[num valid rows] int64: the row of the step each valid place belongs to."""
    trees: Sequence[Tile] = ()
    """The tiles, where keys are those of trees' nodes."""
    masks: dict[tuple[int | None, int], Tensor] = field(default_factory=dict)


class SdpaBatch:
    """One step on SDPA; see AttentionBatch. deterministic bounds the tiles (see the module)."""

    def __init__(self, slices: Sequence[SequenceSlice], num_rows: int, deterministic: bool) -> None:
        self._slices = slices
        self._num_rows = num_rows
        self._num_covered_rows = max(part.first_row + part.num_rows for part in slices)
        self._deterministic = deterministic
        self._slots = slot_mapping(slices, num_rows)
        self._groups: dict[int, list[_Group]] = {}

    def write_kv(self, pool: Tensor, key: Tensor, value: Tensor) -> None:
        if self._slots.device != pool.device:
            self._slots = moved(self._slots, pool.device)
        pool.index_copy_(0, self._slots, torch.cat((key, value), dim=1))

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        group_size = query.shape[1] // shape.num_kv_heads
        groups = self._groups.get(group_size)
        if groups is None:
            groups = self._groups[group_size] = self._tile(group_size, query.device)
        output = torch.empty(self._num_rows, query.shape[1] * shape.head_dim, dtype=query.dtype, device=query.device)
        # Rows that only pad the step must stay finite: their keys go to block 0, which pads the tables of shorter
        # sequences, and a NaN there would get through the mask.
        output[self._num_covered_rows :] = 0
        for group in groups:
            rows = _attend_group(query, pool, shape, group)
            output.index_copy_(0, group.targets, rows.index_select(0, group.places))
        return output

    def _tile(self, group_size: int, device: torch.device) -> list[_Group]:
        largest = max(1, MAX_TILE_ROWS // group_size) if self._deterministic else 256
        smallest = -(-MIN_TILE_ROWS // group_size)
        by_kind: dict[tuple[bool, bool, int, int], list[Tile]] = defaultdict(list)
        for part in self._slices:
            for tile in cut_into_tiles(part, largest, by_path=self._deterministic):
                num_blocks = -(-tile.num_keys // BLOCK_SIZE)
                # Powers of two bound the padding within a call to half of it.
                width = max(_power_of_two(num_blocks), KEY_SPLIT // BLOCK_SIZE if self._deterministic else 1)
                size = _power_of_two(max(len(tile.rows), smallest), largest)
                by_kind[bool(tile.path), tile.tree is not None, size, width].append(tile)
        return [
            _group(tiles, max(size, smallest), width if self._deterministic else 0, device)
            for (_, _, size, width), tiles in sorted(by_kind.items(), key=lambda item: item[0])
        ]


def _power_of_two(value: int, most: int | None = None) -> int:
    size = 1 << (value - 1).bit_length()
    return size if most is None else min(size, most)


def _group(tiles: Sequence[Tile], size: int, min_width: int, device: torch.device) -> _Group:
    width = max(min_width, *(-(-tile.num_keys // BLOCK_SIZE) for tile in tiles))
    step = torch.arange(size)
    last = torch.tensor([len(tile.rows) - 1 for tile in tiles])[:, None]
    within = torch.minimum(step[None], last)  # [N, Q]
    rows = torch.tensor([[*tile.rows, *[0] * (size - len(tile.rows))] for tile in tiles]).gather(1, within)
    positions = torch.tensor([[*tile.positions, *[0] * (size - len(tile.rows))] for tile in tiles]).gather(1, within)
    are_slots = bool(tiles[0].path)
    if are_slots:
        keys = torch.cat([tile.slots(width * BLOCK_SIZE) for tile in tiles])
    else:
        keys = torch.tensor([[*tile.block_ids[:width], *[0] * (width - len(tile.block_ids))] for tile in tiles]).view(
            -1
        )
    valid = (step[None] <= last).view(-1)
    places = valid.nonzero().view(-1)
    return _Group(
        rows=moved(rows.view(-1), device),
        positions=moved(positions, device),
        keys=moved(keys, device),
        are_slots=are_slots,
        num_tiles=len(tiles),
        places=moved(places, device),
        targets=moved(rows.view(-1)[places], device),
        trees=tiles if tiles[0].tree is not None else (),
    )


def _mask(group: _Group, group_size: int, num_keys: int, shape: AttentionShape, dtype: torch.dtype) -> Tensor:
    """[N, 1, Q * G, L] additive: 0 where row sees key, -inf elsewhere; one per kind of layer and step."""
    window, kind = shape.sliding_window, (shape.sliding_window, shape.first_key)
    mask = group.masks.get(kind)
    if mask is None:
        keys = torch.arange(num_keys, device=group.positions.device)
        if group.trees:
            keys = moved(torch.stack([tile.key_positions(num_keys) for tile in group.trees]), keys.device)[:, None]
        distance = group.positions[:, :, None] - keys  # [N, Q, L]
        visible = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        if shape.first_key:
            visible &= (keys >= shape.first_key) | (distance == 0)
        if group.trees:
            visible &= ~_hidden(group, num_keys)
        additive = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))
        mask = group.masks[kind] = additive.repeat_interleave(group_size, dim=1)[:, None]
    return mask


def _hidden(group: _Group, num_keys: int) -> Tensor:
    """bool [N, Q, L]: keys of nodes that are no ancestors of the place's row."""
    size = group.positions.shape[1]
    hidden = []
    for tile in group.trees:
        rows = tile.hidden_keys(num_keys)
        hidden.append(torch.cat((rows, rows[-1:].expand(size - len(rows), -1))))
    return moved(torch.stack(hidden), group.positions.device)


def _attend_group(query: Tensor, pool: Tensor, shape: AttentionShape, group: _Group) -> Tensor:
    """Attention of the group's places; returns [N * Q, H * D]."""
    num_tiles, num_kv, dim = group.num_tiles, shape.num_kv_heads, shape.head_dim
    group_size = query.shape[1] // num_kv
    unit = 2 * num_kv * dim * (1 if group.are_slots else BLOCK_SIZE)
    key_value = pool.view(-1, unit).index_select(0, group.keys)
    key_value = key_value.view(num_tiles, -1, 2, num_kv, dim)
    mask = _mask(group, group_size, key_value.shape[1], shape, query.dtype)
    return attend_tiles(query.index_select(0, group.rows), key_value, mask, shape)
