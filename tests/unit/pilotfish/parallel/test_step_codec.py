"""Steps survive the way to the other ranks."""

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.parallel.messages import Forward, encoder, order_decoder
from pilotfish.parallel.step_codec import StepPacker, StepUnpacker
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import BLOCK_SIZE


def test_a_step_arrives_as_it_was() -> None:
    tree = DraftTree((-1, -1, 1))
    step = StepInput(
        token_ids=[3, 128_255, 7, 9, 11],
        positions=[30, 131_071, 31, 31, 32],
        slices=[SequenceSlice(0, 1, 30, [4, 2]), SequenceSlice(1, 4, 40, [9, 8, 7], tree)],
        logit_rows=[0, 1, 2, 3, 4],
    )
    assert arrived(StepPacker(), StepUnpacker(), step) == step


TABLES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=4)
"""Of a few blocks, so that steps have much in common."""


@given(st.lists(TABLES, max_size=6))
def test_steps_arrive_whatever_came_before(steps: list[list[list[int]]]) -> None:
    packer, unpacker = StepPacker(), StepUnpacker()
    sent = [step_of(tables) for tables in steps]
    assert [arrived(packer, unpacker, step) for step in sent] == sent


def test_a_step_that_is_kept_stays_as_it_was() -> None:
    packer, unpacker = StepPacker(), StepUnpacker()
    kept = arrived(packer, unpacker, step_of([[1, 2]]))
    arrived(packer, unpacker, step_of([[1, 2, 3]]))
    assert kept == step_of([[1, 2]])


def step_of(tables: list[list[int]]) -> StepInput:
    """One that decodes in the last place of each table."""
    places = [len(table) * BLOCK_SIZE - 1 for table in tables]
    slices = [
        SequenceSlice(row, 1, place, table) for row, (place, table) in enumerate(zip(places, tables, strict=True))
    ]
    rows = list(range(len(tables)))
    return StepInput(rows, places, slices, rows)


def arrived(packer: StepPacker, unpacker: StepUnpacker, step: StepInput) -> StepInput:
    message = order_decoder.decode(encoder.encode(packer.pack(step)))
    assert isinstance(message, Forward)
    return unpacker.unpack(message)
