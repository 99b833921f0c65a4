"""Which shapes are recorded, and which of them a step gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.graphs.shapes import Buckets, StepShape, num_key_blocks

BUCKETS = Buckets.of_engine(max_sequences=64, max_draft_tokens=32, max_context_tokens=8192)


def part(num_rows: int, first_position: int) -> SequenceSlice:
    return SequenceSlice(0, num_rows, first_position, range(1, 1000))


def test_buckets_follow_the_engines_limits() -> None:
    assert BUCKETS.num_sequences == (1, 2, 4, 8, 16, 32, 64)
    assert BUCKETS.rows_each == (1, 2, 4, 8, 16, 32, 33)
    assert BUCKETS.key_blocks == (32, 128, 512)
    small = Buckets.of_engine(max_sequences=3, max_draft_tokens=1, max_context_tokens=100)
    assert (small.num_sequences, small.rows_each, small.key_blocks) == ((1, 2, 3), (1, 2), (7,))


@pytest.mark.parametrize(
    ("slices", "shape"),
    [
        ([part(1, 0)], StepShape(1, 1, 32)),
        ([part(1, 511)] * 3, StepShape(4, 1, 32)),
        ([part(1, 512), part(5, 3)], StepShape(2, 8, 128)),
        ([part(4, 8188)] * 64, None),  # too many keys to gather
        ([part(8, 100)] * 33, None),  # too many rows, rounded up
        ([part(34, 0)], None),  # a prefill
        ([part(1, 100)] * 65, None),
        ([], None),
    ],
)
def test_a_step_gets_the_smallest_shape_that_holds_it(slices: list[SequenceSlice], shape: StepShape | None) -> None:
    assert BUCKETS.find(slices, gathers=True) == shape


def test_a_kernel_that_follows_any_length_needs_no_key_blocks() -> None:
    assert BUCKETS.find([part(4, 8188)] * 64, gathers=False) == StepShape(64, 4, 0)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8000)), min_size=1, max_size=40),
    gathers=st.booleans(),
)
def test_whatever_is_found_holds_the_step_and_is_recorded(sizes: list[tuple[int, int]], gathers: bool) -> None:
    slices = [part(*size) for size in sizes]
    shape = BUCKETS.find(slices, gathers=gathers)
    if shape is None:
        return
    assert shape.num_sequences >= len(slices)
    assert shape.rows_each >= max(one.num_rows for one in slices)
    assert shape.num_rows <= BUCKETS.max_rows
    if gathers:
        assert shape.num_key_blocks >= max(map(num_key_blocks, slices))
    assert shape in BUCKETS.shapes(gathers_all=gathers)


def test_the_largest_shape_is_recorded_first() -> None:
    shapes = BUCKETS.shapes(gathers_all=True)
    assert len(set(shapes)) == len(shapes)
    assert [shape.num_rows for shape in shapes] == sorted((shape.num_rows for shape in shapes), reverse=True)
    assert all(shape.num_sequences * shape.num_key_blocks <= BUCKETS.max_key_blocks for shape in shapes)


def test_where_nothing_is_gathered_only_trees_have_key_blocks() -> None:
    shapes = BUCKETS.shapes(gathers_all=False)
    assert {shape.num_key_blocks for shape in shapes if shape.rows_each == 1} == {0}
    assert {shape.num_key_blocks for shape in shapes if shape.rows_each == 4} == {0, 32, 128, 512}
