"""A step as it travels to the other ranks."""

from __future__ import annotations

from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.parallel.messages import Forward, Slice, pack, unpack
from pilotfish.speculation.trees import DraftTree
from pilotfish.types import BLOCK_SIZE


def step_to_message(step: StepInput) -> Forward:
    """Only the blocks that the rows see travel: a table is as long as its sequence."""
    return Forward(
        token_ids=pack(step.token_ids),
        positions=pack(step.positions),
        logit_rows=pack(step.logit_rows),
        slices=[_packed(part) for part in step.slices],
        exit_layer=step.exit_layer,
    )


def step_from_message(message: Forward) -> StepInput:
    """The step that step_to_message packed."""
    return StepInput(
        token_ids=unpack(message.token_ids),
        positions=unpack(message.positions),
        slices=[_unpacked(part) for part in message.slices],
        logit_rows=unpack(message.logit_rows),
        exit_layer=message.exit_layer,
    )


def _packed(part: SequenceSlice) -> Slice:
    num_blocks = -(-(part.first_position + part.num_rows) // BLOCK_SIZE)
    parents = None if part.tree is None else part.tree.parents
    return Slice(part.first_row, part.num_rows, part.first_position, pack(part.block_ids[:num_blocks]), parents)


def _unpacked(part: Slice) -> SequenceSlice:
    tree = None if part.parents is None else DraftTree(part.parents)
    return SequenceSlice(part.first_row, part.num_rows, part.first_position, unpack(part.block_ids), tree)
