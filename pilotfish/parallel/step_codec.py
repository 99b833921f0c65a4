"""A step as it travels to the other ranks, with only what is new of block tables.

A step of 64 long sequences refers to thousands of blocks, nearly all of which the step before did, too. All ranks wait
for what happens here, so that it goes by columns: a Python loop over numbers would take longer than the message.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.parallel.messages import Forward, pack, unpack
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import BLOCK_SIZE


class StepPacker:
    """Rank 0's end. Each message stands on the one before: all of them have to be sent, in order."""

    def __init__(self) -> None:
        self._tables: list[list[int]] = []
        """Block tables of the latest step, by slice."""

    def pack(self, step: StepInput) -> Forward:
        """Only the blocks that the rows see travel: a table may be longer than that."""
        slices = step.slices
        known, tables = self._tables, [_table(part) for part in slices]
        new_tables = []
        for index, table in enumerate(tables):
            before = known[index] if index < len(known) else []
            if table != before:
                num_kept = _num_kept(before, table)
                new_tables.append((index, num_kept, pack(table[num_kept:])))
        message = Forward(
            token_ids=pack(step.token_ids),
            positions=pack(step.positions),
            logit_rows=pack(step.logit_rows),
            first_rows=pack([part.first_row for part in slices]),
            num_rows=pack([part.num_rows for part in slices]),
            first_positions=pack([part.first_position for part in slices]),
            new_tables=new_tables,
            trees={index: part.tree.parents for index, part in enumerate(slices) if part.tree is not None},
        )
        self._tables = tables  # last: what could not be packed is not sent
        return message


class StepUnpacker:
    """The end of another rank. Needs every message of the packer's, in order."""

    def __init__(self) -> None:
        self._tables: list[list[int]] = []

    def unpack(self, message: Forward) -> StepInput:
        """The step that was packed."""
        first_rows = unpack(message.first_rows)
        num_slices = len(first_rows)
        tables = self._tables[:num_slices]
        tables += [[] for _ in range(num_slices - len(tables))]
        for index, num_kept, blocks in message.new_tables:
            # A new list: whoever has the latest step keeps it as it was.
            tables[index] = tables[index][:num_kept] + unpack(blocks)
        self._tables = tables
        trees: list[DraftTree | None] = [None] * num_slices
        for index, parents in message.trees.items():
            trees[index] = DraftTree(parents)
        columns = unpack(message.num_rows), unpack(message.first_positions), tables, trees
        return StepInput(
            token_ids=unpack(message.token_ids),
            positions=unpack(message.positions),
            slices=list(map(SequenceSlice, first_rows, *columns)),
            logit_rows=unpack(message.logit_rows),
        )


def _table(part: SequenceSlice) -> list[int]:
    """The blocks up to the slice's last row, as a list of our own: the sequence's goes on changing."""
    num_blocks = -(-(part.first_position + part.num_rows) // BLOCK_SIZE)
    table: Sequence[int] = part.block_ids[:num_blocks]
    return table if isinstance(table, list) else list(table)


def _num_kept(known: list[int], table: list[int]) -> int:
    """How many blocks of the known table a new one begins with: all that fit, or none. Another sequence's table, or
    one that was cut within, is rare enough to travel whole."""
    num_common = min(len(known), len(table))
    return num_common if known[:num_common] == table[:num_common] else 0
