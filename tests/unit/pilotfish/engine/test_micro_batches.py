from __future__ import annotations

import pytest

from pilotfish.engine.micro_batches import first_micro_batch


def roofline(num_rows: float) -> float:
    """8, and 0.1 a row from 80 on."""
    return max(8.0, 0.1 * num_rows)


@pytest.mark.parametrize(
    ("num_sequences", "num_rows", "idle", "first"),
    [
        (16, 160, 6.0, 8),  # 22 in one step, 16 in turns
        (17, 170, 6.0, 9),  # 23 and 17
        (40, 400, 3.0, 20),  # 43 and 40
        (40, 400, 1.9, 40),  # 41.9 and 40: not worth it
        (8, 80, 6.0, 8),  # 14 and 16: the weights are read twice
        (8, 80, 100.0, 8),  # 108 either way
        (16, 160, 60.0, 8),  # 76 and 68: what is left of the step is hidden
        (16, 160, 0.0, 16),
        (3, 480, 5.0, 2),  # 53 and 48
        (3, 480, 2.0, 3),  # 50 and 48
    ],
)
def test_turns_pay_where_rows_take_time_and_the_target_would_stand_still(
    num_sequences: int, num_rows: float, idle: float, first: int
) -> None:
    assert first_micro_batch(num_sequences, num_rows, idle, roofline, roofline) == first


def test_halves_are_whole_sequences() -> None:
    # 2 + 0.1 a row: 3.8 and 2 in one step; 3.2 and 2.6 in turns, where equal halves would take 2.9 each.
    assert first_micro_batch(3, 18, 2.0, *[lambda rows: 2 + 0.1 * rows] * 2) == 3


def test_what_is_not_known_speaks_against_turns() -> None:
    # 96 rows take 9.6; on a line between 48 and 512 they would take 12.5, and 14.1 with the pause is less than 16.
    assert first_micro_batch(16, 96, 6.0, lambda _: 9.6, lambda rows: 8.0 if rows < 50 else 12.5) == 16
    assert first_micro_batch(16, 96, 6.0, lambda _: 12.5, lambda rows: 8.0 if rows < 50 else 12.5) == 8


def test_nothing_is_known_before_the_first_step() -> None:
    assert first_micro_batch(16, 160, 0.0, *[lambda _: 0.0] * 2) == 16
