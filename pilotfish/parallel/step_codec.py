"""A step as it travels to the other ranks: of block tables only what is new.

A step of 64 long sequences refers to thousands of blocks, nearly all of which the step before did, too.
"""

from __future__ import annotations

from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.parallel.messages import Forward, empty_pack, pack, unpack
from pilotfish.speculation.trees import DraftTree
from pilotfish.types import BLOCK_SIZE

_NUMBERS_PER_SLICE = 5


class StepPacker:
    """Rank 0's end. Each message stands on the one before: all of them have to be sent, in order."""

    def __init__(self) -> None:
        self._tables: list[list[int]] = []
        """Of the latest step, by slice."""

    def pack(self, step: StepInput) -> Forward:
        """Only the blocks that the rows see travel: a table may be longer than that."""
        slices, block_ids = empty_pack(), empty_pack()
        trees: dict[int, tuple[int, ...]] = {}
        known = self._tables
        self._tables = []
        for index, part in enumerate(step.slices):
            num_blocks = -(-(part.first_position + part.num_rows) // BLOCK_SIZE)
            table = list(part.block_ids[:num_blocks])
            num_kept = _num_kept(known[index], table) if index < len(known) else 0
            if num_kept < num_blocks:
                block_ids.fromlist(table[num_kept:])  # twice as fast as extend, which takes any sequence
            slices.extend((part.first_row, part.num_rows, part.first_position, num_kept, num_blocks))
            self._tables.append(table)
            if part.tree is not None:
                trees[index] = part.tree.parents
        return Forward(
            token_ids=pack(step.token_ids),
            positions=pack(step.positions),
            logit_rows=pack(step.logit_rows),
            slices=slices.tobytes(),
            block_ids=block_ids.tobytes(),
            trees=trees,
            exit_layer=step.exit_layer,
        )


class StepUnpacker:
    """The end of another rank. Needs every message of the packer's, in order."""

    def __init__(self) -> None:
        self._tables: list[list[int]] = []

    def unpack(self, message: Forward) -> StepInput:
        """The step that was packed."""
        known, self._tables = self._tables, []
        slices = []
        numbers, block_ids, start = iter(unpack(message.slices)), unpack(message.block_ids), 0
        parts = zip(*[numbers] * _NUMBERS_PER_SLICE, strict=True)
        for index, (first_row, num_rows, first_position, num_kept, num_blocks) in enumerate(parts):
            table = known[index] if num_kept else []
            if num_kept < num_blocks or num_kept < len(table):
                # A new list: whoever has the latest step keeps it as it was.
                end = start + num_blocks - num_kept
                table = table[:num_kept] + block_ids[start:end]
                start = end
            self._tables.append(table)
            parents = message.trees.get(index)
            tree = None if parents is None else DraftTree(parents)
            slices.append(SequenceSlice(first_row, num_rows, first_position, table, tree))
        return StepInput(
            token_ids=unpack(message.token_ids),
            positions=unpack(message.positions),
            slices=slices,
            logit_rows=unpack(message.logit_rows),
            exit_layer=message.exit_layer,
        )


def _num_kept(known: list[int], table: list[int]) -> int:
    """How many blocks of the known table a new one begins with: all that fit, or none. Another sequence's table, or
    one that was cut within, is rare enough to travel whole."""
    if known == table:
        return len(table)
    num_common = min(len(known), len(table))
    return num_common if known[:num_common] == table[:num_common] else 0
