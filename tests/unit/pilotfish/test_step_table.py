"""What a step takes, read off the table that a replica told."""

import pytest

from pilotfish.step_table import StepTable, num_free_nodes

TABLE = StepTable((1, 8, 16), (8_000_000, 8_000_000, 16_000_000))


def test_an_empty_table_knows_nothing() -> None:
    assert StepTable().step_s(4) == 0.0


@pytest.mark.parametrize(
    ("num_rows", "step_s"),
    [
        (0.5, 0.008),
        (1, 0.008),
        (4, 0.008),
        (8, 0.008),
        (12, 0.012),  # a roofline through 16 rows
        (16, 0.016),
        (24, 0.024),  # the last slope
    ],
)
def test_between_and_beyond_cells(num_rows: float, step_s: float) -> None:
    assert TABLE.step_s(num_rows) == pytest.approx(step_s)


def test_noise_at_the_end_makes_no_larger_step_the_shorter_one() -> None:
    assert StepTable((1, 8), (9_000_000, 8_000_000)).step_s(100) == 0.008


@pytest.mark.parametrize(("num_sequences", "num_draft_tokens", "expected"), [(1, 5, 11), (4, 2, 2), (1, 40, 47)])
def test_trees_fill_the_tile_that_chains_began(num_sequences: int, num_draft_tokens: int, expected: int) -> None:
    # A kernel that takes 12 rows in the time of one.
    assert num_free_nodes(lambda num_rows: 0.010 * -(-num_rows // 12), num_sequences, num_draft_tokens, 63) == expected
