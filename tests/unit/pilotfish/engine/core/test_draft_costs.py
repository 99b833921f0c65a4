import math

import pytest

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds

STEP_S = 0.010


def tiles(num_rows: float) -> float:
    """A step of a kernel that takes 12 rows in the time of one."""
    return STEP_S * -(-num_rows // 12)


def thresholds(num_sequences: int, round_s: float = 0.001) -> Thresholds:
    costs = DraftCosts()
    for _ in range(300):
        costs.add(2 * num_sequences, STEP_S, 1, round_s)
    return costs.thresholds(tiles, num_sequences, 5 * num_sequences, 0)


@pytest.mark.parametrize(("num_sequences", "expected"), [(4, 8), (8, 4), (11, 1)])
def test_a_step_takes_the_likeliest_drafts_that_fit_its_tile(num_sequences: int, expected: int) -> None:
    assert thresholds(num_sequences).best([0.6] * 30)[0] == expected
    assert thresholds(num_sequences).best([0.6] * 30, num_others=1)[0] == expected - 1


def test_a_second_tile_is_begun_where_enough_drafts_fill_it() -> None:
    assert thresholds(4).best([0.99] * 20)[0] == 20
    assert thresholds(4).best([]) == (0, 0.0)


def test_chains_go_on_where_their_next_tokens_pay_for_the_round() -> None:
    four = thresholds(4)
    assert four.least([0.9, 0.8, 0.7, 0.3], [0.9, 0.8, 0.7, 0.3]) == 0.3, "there is room for all"
    assert four.least([0.9] * 8 + [0.1], [0.9, 0.1]) == math.inf, "the tile is full"
    assert thresholds(4, round_s=0.1).least([0.9] * 4, [0.9] * 4) == math.inf, "the round costs too much"
    assert Thresholds().least([0.5], [0.5]) == Thresholds().round, "nothing is known yet"


def test_what_was_measured_long_ago_is_forgotten() -> None:
    costs = DraftCosts()
    for _ in range(600):
        costs.add(100, STEP_S, 1, 0.1)
    for _ in range(600):
        costs.add(2, STEP_S, 1, 0.001)
    assert costs.thresholds(tiles, 1, 5, 0).round_price == pytest.approx(thresholds(1).round_price, rel=0.01)


def test_every_row_has_its_price_however_many_there_are() -> None:
    costs = DraftCosts()
    costs.add(2, STEP_S, 1, STEP_S)
    prices = costs.thresholds(lambda num_rows: STEP_S * num_rows, 1, 5, 150).row_prices
    assert prices[:151] == pytest.approx([1.0 * num_rows for num_rows in range(151)])
