"""What rounds and plain tokens are said to take."""

from __future__ import annotations

import pytest

from orchestrator.control.round_costs import RoundCosts

DRAFT_S = 0.001
"""Of a draft token."""


def add_rounds(costs: RoundCosts, load: int, k: int, overhead_s: float, num_rounds: int = 200) -> None:
    """So many of each sequence, while all draft K."""
    rows = load * (k + 1)
    for _ in range(load * num_rounds):
        costs.add_round(load, k, rows, costs.table.step_s(rows) + k * DRAFT_S + overhead_s, k * DRAFT_S)


def overhead_s(costs: RoundCosts, load: int, k: int) -> float:
    return costs.seconds(load, k, k + 1) - costs.table.step_s(load * (k + 1)) - k * DRAFT_S


@pytest.mark.parametrize("load", [1, 8, 64])
def test_a_round_takes_its_step_its_drafting_and_an_overhead(table, load) -> None:
    costs = RoundCosts(table)
    add_rounds(costs, load, 4, 0.003)
    assert overhead_s(costs, load, 4) == pytest.approx(0.003, rel=0.1)


def test_a_k_that_was_not_measured_is_charged_a_part_of_what_others_take(table) -> None:
    """With nothing it would seem better than any other; with all of it it would never be tried."""
    costs = RoundCosts(table)
    add_rounds(costs, 1, 4, 0.004)
    assert 0.001 < overhead_s(costs, 1, 2) + 2 * DRAFT_S < 0.004


def test_one_slow_round_is_hardly_believed(table) -> None:
    costs = RoundCosts(table)
    add_rounds(costs, 1, 4, 0.1, num_rounds=1)
    assert overhead_s(costs, 1, 4) < 0.03
    costs = RoundCosts(table)
    add_rounds(costs, 1, 4, 0.001)
    add_rounds(costs, 1, 4, 0.1, num_rounds=1)
    assert overhead_s(costs, 1, 4) < 0.003


def test_loads_are_told_apart_and_a_new_one_begins_with_its_neighbours(table) -> None:
    costs = RoundCosts(table)
    add_rounds(costs, 1, 4, 0.001)
    add_rounds(costs, 32, 4, 0.02)
    assert overhead_s(costs, 1, 4) == pytest.approx(0.001, rel=0.2)
    assert overhead_s(costs, 32, 4) == pytest.approx(0.02, rel=0.2)
    assert overhead_s(costs, 24, 4) > overhead_s(costs, 2, 4)
    assert overhead_s(costs, 33, 4) == pytest.approx(0.02, rel=0.2), "about the same load"


def test_plain_decoding_is_measured_against_the_table(table) -> None:
    costs = RoundCosts(table)
    for _ in range(50):
        costs.add_plain(4, 1.3 * table.step_s(4))
    assert costs.plain_s(4) == pytest.approx(1.3 * table.step_s(4), rel=0.03)
    assert costs.plain_s(64) == pytest.approx(1.3 * table.step_s(64), rel=0.03), "as under the nearest load"
