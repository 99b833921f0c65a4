"""What a draft token adds to a step."""

from __future__ import annotations

import random

import pytest

from pilotfish.integrations.vllm.token_cost import TokenCost


def test_before_any_step_a_token_costs_nothing() -> None:
    assert TokenCost().num_steps == 0
    assert TokenCost().per_token(0.0) == 0


def test_the_slope_is_found_whatever_asking_costs() -> None:
    cost = TokenCost()
    noise = random.Random(0)
    for step in range(200):
        cost.add(step % 20, 1.3 + 0.04 * (step % 20) + noise.gauss(0, 0.05))
    assert cost.num_steps > 50
    assert cost.per_token(0.0) == pytest.approx(0.04, abs=0.004)


def test_one_slow_step_does_not_make_tokens_dear() -> None:
    cost = TokenCost()
    for _ in range(20):
        cost.add(8, 1.1)
    cost.add(10, 4.0)
    assert cost.per_token(0.0) < 0.1


def test_steps_alike_tell_nothing_of_tokens() -> None:
    cost = TokenCost()
    for _ in range(50):
        cost.add(8, 1.4)
    assert cost.per_token(0.0) == 0


def test_more_tokens_in_less_time_was_luck() -> None:
    cost = TokenCost()
    for step in range(50):
        cost.add(step % 10, 2 - 0.1 * (step % 10))
    assert cost.per_token(0.0) == 0


def test_what_it_cost_long_ago_is_forgotten() -> None:
    cost = TokenCost()
    for step in range(300):
        cost.add(step % 20, 1 + 0.1 * (step % 20))
    for step in range(1500):
        cost.add(step % 20, 1 + 0.01 * (step % 20))
    assert cost.per_token(0.0) == pytest.approx(0.01, abs=0.002)


def test_until_it_is_measured_another_size_of_batch_tells() -> None:
    cost = TokenCost()
    assert cost.per_token(0.03) == pytest.approx(0.03)
    for step in range(200):
        cost.add(step % 20, 1 + 0.01 * (step % 20))
    assert cost.per_token(0.03) == pytest.approx(0.01, abs=0.001)
