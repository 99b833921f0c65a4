"""A step as it travels to the other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.parallel.messages import Forward, empty_pack, pack, unpack
from pilotfish.speculation.trees import DraftTree
from pilotfish.types import BLOCK_SIZE


def step_to_message(step: StepInput) -> Forward:
    """Only the blocks that the rows see travel: a table may be longer than that."""
    slices, block_ids = empty_pack(), empty_pack()
    trees: dict[int, tuple[int, ...]] = {}
    for index, part in enumerate(step.slices):
        num_blocks = -(-(part.first_position + part.num_rows) // BLOCK_SIZE)
        seen = part.block_ids if len(part.block_ids) == num_blocks else part.block_ids[:num_blocks]
        # Twice as fast as extend, which takes any sequence.
        block_ids.fromlist(seen if isinstance(seen, list) else list(seen))
        slices.extend((part.first_row, part.num_rows, part.first_position, num_blocks))
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


def step_from_message(message: Forward) -> StepInput:
    """The step that step_to_message packed."""
    return StepInput(
        token_ids=unpack(message.token_ids),
        positions=unpack(message.positions),
        slices=list(_slices(message)),
        logit_rows=unpack(message.logit_rows),
        exit_layer=message.exit_layer,
    )


def _slices(message: Forward) -> Iterator[SequenceSlice]:
    numbers, block_ids = iter(unpack(message.slices)), unpack(message.block_ids)
    start = 0
    for index, (first_row, num_rows, first_position, num_blocks) in enumerate(zip(*[numbers] * 4, strict=True)):
        end = start + num_blocks
        parents = message.trees.get(index)
        tree = None if parents is None else DraftTree(parents)
        yield SequenceSlice(first_row, num_rows, first_position, block_ids[start:end], tree)
        start = end
