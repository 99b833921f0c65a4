"""The shapes that steps are rounded up to, so that a recorded graph fits them.

Legend: B sequences, Q rows of each, W blocks of keys of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.types import BLOCK_SIZE

MAX_ROWS = 256
"""B * Q of the largest shape: beyond it a step is bound by arithmetic, and padding costs what it computes."""
MAX_ROWS_EACH = 64
"""A tree has at most 64 rows."""
MAX_KEY_BLOCKS = 1 << 13
"""B * W of the largest shape: the keys that a layer gathers, 0.5 GB for 8 key heads of 128 in bfloat16."""
FEWEST_KEY_BLOCKS = 32
KEY_BLOCKS_FACTOR = 4
"""Between lengths. Gathering four times the keys costs less than the weights that a step reads; twice the shapes
cost twice the memory and time of recording."""
TREE_SPAN = 64
"""Nodes lie at most so far behind their root: a sliding window that is at least so long hides no ancestor."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What is fixed when a step is recorded."""

    num_sequences: int
    rows_each: int
    num_key_blocks: int
    """W; 0: the attention kernel follows any length."""

    @property
    def num_rows(self) -> int:
        return self.num_sequences * self.rows_each


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """The shapes that are recorded; each tuple ascending."""

    num_sequences: tuple[int, ...]
    rows_each: tuple[int, ...]
    key_blocks: tuple[int, ...]
    max_rows: int = MAX_ROWS
    max_key_blocks: int = MAX_KEY_BLOCKS

    @classmethod
    def of_engine(cls, *, max_sequences: int, max_draft_tokens: int, max_context_tokens: int) -> Buckets:
        """Powers of two up to what the engine's limits allow; lengths go up by fours."""
        longest = -(-max_context_tokens // BLOCK_SIZE)
        return cls(
            num_sequences=_powers(1, min(max_sequences, MAX_ROWS), 2),
            rows_each=_powers(1, min(max_draft_tokens + 1, MAX_ROWS_EACH), 2),
            key_blocks=_powers(min(FEWEST_KEY_BLOCKS, longest), longest, KEY_BLOCKS_FACTOR),
        )

    def shapes(self, *, gathers_all: bool) -> list[StepShape]:
        """Every shape, the largest first, so that the smaller ones find their memory in its.

        gathers_all: the backend gathers keys in every step; else only where drafts are trees.
        """
        result = []
        for batch in self.num_sequences:
            for rows in self.rows_each:
                if batch * rows > self.max_rows:
                    continue
                if not gathers_all:
                    result.append(StepShape(batch, rows, 0))
                if gathers_all or rows > 1:
                    widths = (width for width in self.key_blocks if batch * width <= self.max_key_blocks)
                    result.extend(StepShape(batch, rows, width) for width in widths)
        return sorted(result, key=lambda shape: (-shape.num_rows, -shape.num_sequences * shape.num_key_blocks))

    def find(self, slices: Sequence[SequenceSlice], *, gathers: bool) -> StepShape | None:
        """The smallest shape that holds the slices; None when none does. gathers: their keys have to be gathered."""
        batch = _at_least(self.num_sequences, len(slices))
        rows = _at_least(self.rows_each, max((part.num_rows for part in slices), default=0))
        if batch is None or rows is None or batch * rows > self.max_rows:
            return None
        if not gathers:
            return StepShape(batch, rows, 0)
        width = _at_least(self.key_blocks, max(num_key_blocks(part) for part in slices))
        if width is None or batch * width > self.max_key_blocks:
            return None
        return StepShape(batch, rows, width)


def num_key_blocks(part: SequenceSlice) -> int:
    """Blocks that hold the keys of a slice, its own rows' included."""
    return -(-(part.first_position + part.num_rows) // BLOCK_SIZE)


def _powers(first: int, last: int, factor: int) -> tuple[int, ...]:
    """first, first * factor, ... up to the first that is at least last, which takes its place."""
    values = [first]
    while values[-1] < last:
        values.append(min(values[-1] * factor, last))
    return tuple(values)


def _at_least(values: Sequence[int], needed: int) -> int | None:
    if needed == 0:
        return None
    return next((value for value in values if value >= needed), None)
