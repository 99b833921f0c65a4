from __future__ import annotations

import pytest

from pilotfish.planning.drafting import Drafting


def test_one_outcome_ahead_is_full_acceptance_and_the_likeliest_bonus() -> None:
    assert Drafting(acceptance=(0.8,)).hit_rate(3, 1) == pytest.approx(0.8**4)


def test_more_outcomes_hit_more_often_and_never_more_than_always() -> None:
    rates = [Drafting(acceptance=(0.7, 0.6)).hit_rate(4, number) for number in range(30)]
    assert rates[0] == 0
    assert rates == sorted(rates)
    assert 0.9 < rates[-1] <= 1


def test_the_budget_ahead_shrinks_with_the_batch() -> None:
    drafting = Drafting(ahead_tokens=60)
    assert drafting.num_outcomes_ahead(5, 1) == 12
    assert 0 < drafting.num_outcomes_ahead(5, 16) < 12
    assert drafting.num_outcomes_ahead(5, 128) == 0
    assert Drafting().num_outcomes_ahead(5, 1) == 0
