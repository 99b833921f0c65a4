"""A step laid out on the device: what its rows are, and what each of them sees.

Rows lie as in the step. Attention goes by tiles: consecutive rows of one sequence, which share its keys; and tiles by
pieces: a piece is what one program reads of the keys. What is left of a shape that is larger than the step is padding:
rows of token 0 at position 0 that belong to no tile and write to slot 0 (block 0 belongs to nobody), and pieces without
rows.

Legend: T rows, P pieces, R rows whose logits are wanted.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.models.attention.paged import AttentionBatch, slots_of
from pilotfish.models.decoder import StepInput
from pilotfish.speculation.sampling.transfer import write
from pilotfish.types import BLOCK_SIZE

TREE_SPAN = 64
"""Nodes lie at most so far behind their root: a sliding window that is at least so long hides no ancestor."""
FEW_ROWS = 128
"""Steps up to so many rows are decodes and verifications of few rows each, and have small tiles."""
NUM_PROGRAMS = 264
"""Programs launched where keys can be shared out: two for each of an H100's 132 multiprocessors, which take them all
at once."""
MIN_SHARE = 128
"""Keys below which they are not shared out any further."""

_NUM_ROW_FIELDS = 7
_NUM_COUNTS = 1
_PIECE_FIELDS = 6


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a launch is made for; a step may have less of everything."""

    num_rows: int
    num_tiles: int
    num_key_heads: int

    @classmethod
    def recorded(cls, num_rows: int, max_sequences: int, num_key_heads: int) -> StepShape:
        """The shape for any step of at most max_sequences sequences."""
        most = min(num_rows, max_sequences + num_rows // _tile_rows(num_rows))
        return cls(num_rows, most, num_key_heads)

    @classmethod
    def of(cls, step: StepInput, num_key_heads: int) -> StepShape:
        """The shape of this step alone."""
        num_rows = len(step.token_ids)
        return cls(num_rows, num_tiles(step, _tile_rows(num_rows)), num_key_heads)

    @property
    def tile_rows(self) -> int:
        """Rows of a tile, at most."""
        return _tile_rows(self.num_rows)

    @property
    def max_shares(self) -> int:
        """Pieces of a tile, at most: the more rows, the fewer, since each keeps a result for every row."""
        return 1 << min(5, max(1, 2048 // self.num_rows).bit_length() - 1)

    @property
    def num_pieces(self) -> int:
        """See _shares: beyond one of each tile there are no more than there are programs for."""
        return min(self.num_tiles * self.max_shares, self.num_tiles + NUM_PROGRAMS // self.num_key_heads)

    @property
    def num_fixed_values(self) -> int:
        """Values in the buffer before the ids of blocks."""
        return _NUM_ROW_FIELDS * self.num_rows + _PIECE_FIELDS * self.num_pieces + _NUM_COUNTS


def num_tiles(step: StepInput, tile_rows: int) -> int:
    """Tiles that a step takes."""
    return sum(-(-part.num_rows // tile_rows) for part in step.slices)


def _tile_rows(num_rows: int) -> int:
    return 8 if num_rows <= FEW_ROWS else 16


@dataclass(frozen=True, slots=True)
class StepRows:
    """Views of one int64 buffer, which `fill` writes with a single copy to the device."""

    shape: StepShape
    buffer: Tensor
    token_ids: Tensor
    """[T]"""
    positions: Tensor
    """[T]"""
    places: Tensor
    """[T] See SequenceSlice.sight."""
    ancestors: Tensor
    """[T] As well."""
    slots: Tensor
    """[T] where the row's key and value go."""
    logit_rows: Tensor
    """[T] the R rows whose logits are wanted, then row 0."""
    shares: Tensor
    """[T] pieces of the row's tile."""
    pieces: Tensor
    """[P, 6] of its tile: first row, number of rows, index of the sequence's first block in block_ids, keys that lie
    before the end of the tile's; which piece of the tile it is, of how many."""
    counts: Tensor
    """[1] rows of the step."""
    block_ids: Tensor
    """The blocks of the sequences, one sequence after the other."""

    @classmethod
    def of(cls, shape: StepShape, buffer: Tensor) -> StepRows:
        """Over a buffer of at least shape.num_fixed_values; the rest is room for ids of blocks."""
        num_values, num_rows = _NUM_ROW_FIELDS * shape.num_rows, shape.num_rows
        pieces_end = num_values + _PIECE_FIELDS * shape.num_pieces
        fixed = shape.num_fixed_values
        tokens, positions, places, ancestors, slots, logits, shares = buffer[:num_values].view(-1, num_rows)
        pieces = buffer[num_values:pieces_end].view(-1, _PIECE_FIELDS)
        counts, block_ids = buffer[pieces_end:fixed], buffer[fixed:]
        return cls(
            shape, buffer, tokens, positions, places, ancestors, slots, logits, shares, pieces, counts, block_ids
        )

    @classmethod
    def holding(cls, step: StepInput, num_key_heads: int, device: torch.device) -> StepRows:
        """A step's own, filled."""
        shape = StepShape.of(step, num_key_heads)
        values = laid_out(step, shape)
        rows = cls.of(shape, torch.empty(len(values), dtype=torch.int64, device=device))
        rows.fill(values)
        return rows

    def fill(self, values: array[int]) -> None:
        """Write a step that is laid out in this shape."""
        write(self.buffer[: len(values)], torch.frombuffer(values, dtype=torch.int64))


RowAttention = Callable[[StepRows], AttentionBatch]
"""Attention over rows that lie on the device. What it launches depends on their shape alone."""


def laid_out(step: StepInput, shape: StepShape) -> array[int]:
    """The values of StepRows' buffer for a step, as far as there are ids of blocks. Its slices follow one another."""
    size = shape.tile_rows
    places: list[int] = []
    ancestors: list[int] = []
    slots: list[int] = []
    tiles: list[tuple[int, int, int, int]] = []
    block_ids: list[int] = []
    for part in step.slices:
        seen, masks = part.sight()
        places.extend(seen)
        ancestors.extend(masks)
        slots.extend(slots_of(part.block_ids, part.places))
        num_keys = part.first_position + part.num_rows
        for row in range(0, part.num_rows, size):
            # Rows of a text see nothing behind themselves.
            last = num_keys if part.tree is not None else min(num_keys, part.first_position + row + size)
            tiles.append((part.first_row + row, min(size, part.num_rows - row), len(block_ids), last))
        block_ids.extend(part.block_ids[: -(-num_keys // BLOCK_SIZE)])
    shares = _shares([num_keys for *_, num_keys in tiles], shape)
    values = array("q")
    for field in (step.token_ids, step.positions, places):
        _append(values, array("q", field), shape.num_rows)
    _append(values, array("Q", ancestors), shape.num_rows, padding=1)
    row_shares = [each for (_, num_rows, *_), each in zip(tiles, shares, strict=True) for _ in range(num_rows)]
    for field in (slots, step.logit_rows, row_shares):
        _append(values, array("q", field), shape.num_rows)
    pieces = [(*tile, share, each) for tile, each in zip(tiles, shares, strict=True) for share in range(each)]
    _append(values, array("q", itertools.chain.from_iterable(pieces)), _PIECE_FIELDS * shape.num_pieces)
    values.append(len(step.token_ids))
    values.extend(block_ids)
    return values


def _shares(num_keys: Sequence[int], shape: StepShape) -> list[int]:
    """Pieces of each tile: in proportion to its keys, so that a long text among many short ones does not wait for few
    programs."""
    keys_each = max(MIN_SHARE, -(-sum(num_keys) * shape.num_key_heads // NUM_PROGRAMS))
    return [max(1, min(shape.max_shares, keys // keys_each)) for keys in num_keys]


def _append(values: array[int], field: array[int], size: int, *, padding: int = 0) -> None:
    """Add a field of 64-bit values, padded to its size."""
    values.frombytes(field.tobytes())
    values.extend(itertools.repeat(padding, size - len(field)))
