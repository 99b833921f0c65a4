from __future__ import annotations

from typing import Any

import pytest

from pilotfish.errors import ConfigError
from pilotfish.planning.drafting import Drafting


def test_expected_tokens_count_the_targets_own() -> None:
    assert Drafting(acceptance=(0.5,)).expected_tokens(3) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert Drafting(acceptance=(0.9, 0.5)).expected_tokens(3) == pytest.approx(1 + 0.9 + 0.45 + 0.225)


def test_one_outcome_ahead_is_full_acceptance_and_the_likeliest_bonus() -> None:
    assert Drafting(acceptance=(0.8,)).hit_rate(3, 1) == pytest.approx(0.8**4)


def test_more_outcomes_hit_more_often_and_never_more_than_always() -> None:
    rates = [Drafting(acceptance=(0.7, 0.6)).hit_rate(4, number) for number in range(30)]
    assert rates[0] == 0
    assert rates == sorted(rates)
    assert 0.9 < rates[-1] <= 1


def test_a_perfect_drafter_is_always_foreseen() -> None:
    assert Drafting(acceptance=(1.0,)).hit_rate(5, 1) == pytest.approx(1)


def test_the_budget_ahead_shrinks_with_the_batch() -> None:
    drafting = Drafting(ahead_tokens=60)
    assert drafting.num_outcomes_ahead(5, 1) == 12
    assert 0 < drafting.num_outcomes_ahead(5, 16) < 12
    assert drafting.num_outcomes_ahead(5, 128) == 0
    assert Drafting().num_outcomes_ahead(5, 1) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acceptance": (1.2,)}, "acceptance 1.2 is no probability"),
        ({"acceptance": (-0.1,)}, "between 0 and 1"),
        ({"acceptance": ()}, "at least one"),
        ({"max_draft_tokens": 33}, "between 0 and 32"),
        ({"ahead_tokens": -1}, "ahead"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Drafting(**changes)
