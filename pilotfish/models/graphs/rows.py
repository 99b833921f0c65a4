"""The static buffers of a shape, and how a step is laid out in them.

Sequence b's row r lies at b * Q + r. Rows and sequences that only pad have token 0 at position 0, write to slot 0
(block 0 belongs to nobody) and see the first key of their sequence alone, so that all they compute stays finite.

Legend: B sequences, Q rows of each, W blocks of keys of each, T = B * Q rows, R rows whose logits are wanted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice, slots_of
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.shapes import StepShape
from pilotfish.speculation.sampling.transfer import write

NUM_ROW_FIELDS = 6


@dataclass(frozen=True, slots=True)
class StaticRows:
    """Views of one buffer, all int64, which `fill` writes with a single copy to the device."""

    shape: StepShape
    buffer: Tensor
    """[6 * T + B * W]"""
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
    block_table: Tensor
    """[B * W] blocks that hold the keys."""

    @classmethod
    def of(cls, shape: StepShape, memory: Tensor) -> StaticRows:
        """Over the beginning of memory [at least `num_values(shape)`], int64."""
        rows = shape.num_rows
        buffer = memory[: num_values(shape)]
        tokens, positions, places, ancestors, slots, logits = buffer[: NUM_ROW_FIELDS * rows].view(-1, rows)
        table = buffer[NUM_ROW_FIELDS * rows :]
        return cls(shape, buffer, tokens, positions, places, ancestors, slots, logits, table)

    def fill(self, step: StepInput) -> None:
        """Write a step, whose shape must be this one, to the buffer."""
        write(self.buffer, torch.frombuffer(laid_out(step, self.shape), dtype=torch.int64))

    def row_of(self, step: StepInput) -> list[int]:
        """[rows of the step] where each of the step's rows lies."""
        size = self.shape.rows_each
        return [index * size + row for index, part in enumerate(_in_order(step.slices)) for row in range(part.num_rows)]


def num_values(shape: StepShape) -> int:
    """Values in the buffer of a shape."""
    return NUM_ROW_FIELDS * shape.num_rows + shape.num_sequences * shape.num_key_blocks


def laid_out(step: StepInput, shape: StepShape) -> array[int]:
    """The values of StaticRows' buffer for a step."""
    size, num_rows = shape.rows_each, shape.num_rows
    values = array("q", bytes(8 * num_values(shape)))
    tokens, positions, places, ancestors, slots, logits = (field * num_rows for field in range(NUM_ROW_FIELDS))
    values[ancestors : ancestors + num_rows] = array("q", [1]) * num_rows
    padded_row: dict[int, int] = {}
    table = NUM_ROW_FIELDS * num_rows
    for index, part in enumerate(_in_order(step.slices)):
        count, first = part.num_rows, part.first_row
        start = index * size
        end = start + count
        values[tokens + start : tokens + end] = array("q", step.token_ids[first : first + count])
        values[positions + start : positions + end] = array("q", step.positions[first : first + count])
        seen, masks = part.sight()
        values[places + start : places + end] = array("q", seen)
        values[ancestors + start : ancestors + end] = array("q", array("Q", masks).tobytes())
        values[slots + start : slots + end] = array("q", slots_of(part.block_ids, part.places))
        padded_row.update(zip(range(first, first + count), range(start, end), strict=True))
        width = min(shape.num_key_blocks, len(part.block_ids))
        row_of_table = table + index * shape.num_key_blocks
        values[row_of_table : row_of_table + width] = array("q", part.block_ids[:width])
    wanted = array("q", [padded_row[row] for row in step.logit_rows])
    values[logits : logits + len(wanted)] = wanted
    return values


def _in_order(slices: Sequence[SequenceSlice]) -> list[SequenceSlice]:
    return sorted(slices, key=lambda part: part.first_row)
