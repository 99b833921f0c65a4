"""What one size of batch tells of another."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.batch_load import MIN_TRIAL_STEPS, BatchLoad, BatchLoads


@pytest.fixture
def loads() -> BatchLoads:
    return BatchLoads()


def measure(load: BatchLoad, per_token: float, num_steps: int = 100) -> None:
    for step in range(num_steps):
        load.token_cost.add(step % 20, 1 + per_token * (step % 20))


def test_a_size_is_tried_before_one_far_from_it_is_believed(loads) -> None:
    assert loads.of(8).trials_left == MIN_TRIAL_STEPS
    assert loads.of(5).trials_left == 0
    assert loads.of(1).trials_left == MIN_TRIAL_STEPS


def test_large_batches_about_as_large_are_one_size(loads) -> None:
    assert loads.of(100) is loads.of(104)
    assert loads.of(100) is not loads.of(200)
    assert loads.of(7) is not loads.of(8)


def test_what_is_not_known_of_a_size_the_nearest_tells(loads) -> None:
    for num_rows in (2, 8):
        loads.of(num_rows).plain.add(num_rows / 100)
    assert loads.plain(6) is loads.of(8).plain
    assert loads.nearest(6, lambda load: load.costs.is_known) is None


def test_before_any_plain_step_none_is_known(loads) -> None:
    assert not loads.plain(6).is_known


def test_a_token_costs_as_at_the_nearest_size_until_it_is_measured(loads) -> None:
    measure(loads.of(8), 0.04)
    assert loads.token_cost(6) == pytest.approx(0.04, rel=0.1)
    measure(loads.of(6), 0.02)
    assert loads.token_cost(6) == pytest.approx(0.02, rel=0.1)


def test_a_few_steps_at_one_size_say_nothing_of_others(loads) -> None:
    measure(loads.of(8), 0.04, num_steps=8)
    assert loads.token_cost(6) == 0
