"""Which keys a row of a recorded step sees."""

from __future__ import annotations

import torch

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.attention import visible_keys
from pilotfish.models.graphs.rows import StaticRows, num_values
from pilotfish.models.graphs.shapes import StepShape
from pilotfish.speculation.trees.tree import DraftTree


def visible(part: SequenceSlice, window: int | None = None) -> list[list[int]]:
    """The places that each row of a slice sees."""
    shape = StepShape(2, part.num_rows, 10)
    rows = StaticRows.of(shape, torch.zeros(num_values(shape), dtype=torch.int64))
    rows.fill(StepInput([0] * part.num_rows, part.positions(), [part], []))
    seen = visible_keys(rows, window)
    assert seen[part.num_rows].nonzero().flatten().tolist() == [0]  # a row of the padding
    return [seen[row].nonzero().flatten().tolist() for row in range(part.num_rows)]


def test_text_sees_what_is_before_it() -> None:
    assert visible(SequenceSlice(0, 2, 100, range(1, 9))) == [list(range(101)), list(range(102))]


def test_a_window_ends_what_is_seen() -> None:
    assert visible(SequenceSlice(0, 1, 100, range(1, 9)), 30) == [list(range(71, 101))]


def test_nodes_see_the_text_their_ancestors_and_themselves() -> None:
    part = SequenceSlice(0, 5, 10, range(1, 9), DraftTree((-1, -1, 0, 2)))
    text = list(range(11))
    assert visible(part) == [text, [*text, 11], [*text, 12], [*text, 11, 13], [*text, 11, 13, 14]]


def test_a_window_over_a_tree_counts_positions_and_hides_no_ancestor() -> None:
    """Node 61 is 2 levels below the root, but 62 places behind it."""
    part = SequenceSlice(0, 63, 80, range(1, 12), DraftTree((*[-1] * 61, 60)))
    last = visible(part, 64)[-1]
    assert last == [*range(82 - 63, 81), 80 + 61, 80 + 62]


def test_the_last_possible_node_sees_itself() -> None:
    part = SequenceSlice(0, 64, 3, range(1, 9), DraftTree((-1,) * 63))
    assert visible(part)[-1] == [0, 1, 2, 3, 66]
