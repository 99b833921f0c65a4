"""How a step lies in the buffers of a shape."""

from __future__ import annotations

import torch

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.rows import StaticRows, num_values
from pilotfish.models.graphs.shapes import StepShape
from pilotfish.speculation.trees.tree import DraftTree

SHAPE = StepShape(3, 4, 2)


def filled(step: StepInput, shape: StepShape = SHAPE) -> StaticRows:
    rows = StaticRows.of(shape, torch.full((num_values(shape) + 5,), -7, dtype=torch.int64))
    rows.fill(step)
    return rows


def test_a_trees_nodes_see_by_ancestors_what_lies_behind_the_root() -> None:
    tree = DraftTree((-1, -1, 1))
    part = SequenceSlice(0, 4, 20, [5, 9], tree)  # the root and three nodes
    rows = filled(StepInput([1, 2, 3, 4], part.positions(), [part], range(4)))
    assert rows.positions[:4].tolist() == [20, 21, 21, 22]
    assert rows.places[:4].tolist() == [20] * 4
    assert rows.ancestors[:4].tolist() == [1, 0b11, 0b101, 0b1101]


def test_a_chain_of_any_length_is_text() -> None:
    part = SequenceSlice(0, 70, 0, range(1, 9), DraftTree.chain(69))
    rows = filled(StepInput([1] * 70, part.positions(), [part], [69]), StepShape(1, 70, 8))
    assert rows.places.tolist() == list(range(70))
    assert set(rows.ancestors.tolist()) == {1}


def test_the_last_of_63_nodes_uses_the_sign_bit() -> None:
    part = SequenceSlice(0, 64, 0, range(1, 9), DraftTree((-1,) * 63))
    rows = filled(StepInput([1] * 64, part.positions(), [part], range(64)), StepShape(1, 64, 8))
    assert rows.ancestors[63].item() == 1 - (1 << 63)
