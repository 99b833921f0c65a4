"""What steps take that asked for drafts, over plain ones."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.draft_yield import DraftYield
from pilotfish.integrations.vllm.round_costs import RoundCosts


@pytest.fixture
def drafts() -> DraftYield:
    known = DraftYield(8)
    known.add(8, [(8, 4)] * 32)
    return known


def test_before_any_step_drafts_cost_nothing(drafts) -> None:
    assert not RoundCosts().is_known
    assert RoundCosts().ratio(8, drafts) == 1.0


def test_a_length_costs_what_it_was_measured_to(drafts) -> None:
    costs = RoundCosts()
    for _ in range(10):
        costs.add(8, 1.5)
    assert costs.is_known
    assert costs.ratio(8, drafts) == pytest.approx(1.5)


def test_a_shorter_one_adds_as_much_less_as_it_drafts_less(drafts) -> None:
    costs = RoundCosts()
    costs.add(8, 1.8)
    assert costs.ratio(2, drafts) == pytest.approx(1.2, abs=0.02)


def test_luck_does_not_grow_with_the_length(drafts) -> None:
    costs = RoundCosts()
    costs.add(2, 0.7)
    assert costs.ratio(8, drafts) == 1.0


def test_a_length_that_was_measured_is_believed_over_others(drafts) -> None:
    costs = RoundCosts()
    costs.add(8, 1.8)
    for _ in range(40):
        costs.add(2, 1.6)
    assert costs.ratio(2, drafts) == pytest.approx(1.6, abs=0.1)


def test_what_was_measured_long_ago_fades(drafts) -> None:
    costs = RoundCosts()
    costs.add(8, 4.0)
    for _ in range(400):
        costs.add(4, 1.1)
    assert costs.ratio(8, drafts) == pytest.approx(1.2, abs=0.05)
