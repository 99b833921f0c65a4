"""What asking may lose of all time."""

from __future__ import annotations

from pilotfish.integrations.vllm.loss_budget import LossBudget

STEP_S = 0.03


def test_some_steps_may_be_lost_at_once() -> None:
    budget = LossBudget()
    budget.advance(0.0, STEP_S)
    for _ in range(5):
        budget.spend(STEP_S)
        assert not budget.is_spent
    budget.spend(STEP_S)
    assert budget.is_spent


def test_over_long_no_more_than_its_share_is_lost() -> None:
    budget = LossBudget()
    lost_s = 0.0
    for step in range(10_000):
        budget.advance(step * STEP_S, STEP_S)
        if not budget.is_spent:
            budget.spend(STEP_S)
            lost_s += STEP_S
    assert 0.015 < lost_s / (10_000 * STEP_S) < 0.021


def test_what_was_won_may_be_lost_up_to_a_bound() -> None:
    budget = LossBudget()
    budget.advance(0.0, STEP_S)
    budget.spend(-1000 * STEP_S)
    budget.advance(1.0, STEP_S)
    budget.spend(11 * STEP_S)
    assert not budget.is_spent
    budget.spend(2 * STEP_S)
    assert budget.is_spent


def test_time_alone_saves_little() -> None:
    budget = LossBudget()
    budget.advance(0.0, STEP_S)
    budget.advance(3600.0, STEP_S)
    budget.spend(7 * STEP_S)
    assert budget.is_spent


def test_before_the_clock_was_told_nothing_is_spent() -> None:
    budget = LossBudget()
    budget.spend(STEP_S)
    assert not budget.is_spent
