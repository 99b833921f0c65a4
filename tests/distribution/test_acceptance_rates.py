"""How often drafts are accepted, against theory; coupled output against anything a drafter can do."""

import numpy as np
import pytest

from pilotfish.types import AcceptanceMode, SamplingParams

DRAFTERS = ("good", "bad", "one_hot", "identical")


def total_variation(world, sampling, drafter) -> float:
    """Between the target's and the drafter's distribution of the first output token."""
    last = world.prompt[-1]
    target = world.exact_probs(world.target_table()[last].tolist(), sampling, world.prompt, ())
    drafted = world.exact_probs(world.draft_table(drafter)[last].tolist(), sampling, world.prompt, ())
    return float(np.abs(target - drafted).sum() / 2)


def standard_error(world, rate: float) -> float:
    return (rate * (1 - rate) / world.num_draws) ** 0.5


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_rejection_accepts_one_minus_tv(world, drafter):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION, temperature=0.9, top_p=0.9)
    simulation = world.simulation(sampling, drafter, num_tokens=1)
    simulation.run()
    rate = 1 - total_variation(world, sampling, drafter)
    assert simulation.num_accepted / world.num_draws == pytest.approx(rate, abs=4 * standard_error(world, rate) + 1e-9)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_coupled_agrees_at_least_as_often_as_its_bound(world, drafter):
    sampling = SamplingParams(temperature=0.9, top_p=0.9)
    simulation = world.simulation(sampling, drafter, num_tokens=1)
    simulation.run()
    tv = total_variation(world, sampling, drafter)
    bound = (1 - tv) / (1 + tv)
    assert simulation.num_accepted / world.num_draws >= bound - 4 * standard_error(world, bound)


def test_coupled_output_does_not_depend_on_drafter_or_k(world):
    sampling, num_draws = SamplingParams(top_k=8, repetition_penalty=1.2), world.num_draws // 4
    plain = world.simulation(sampling, "good", num_draft_tokens=0, num_draws=num_draws).run()
    for drafter, num_draft_tokens in (("good", 3), ("bad", 1)):
        tokens = world.simulation(sampling, drafter, num_draft_tokens=num_draft_tokens, num_draws=num_draws).run()
        assert (tokens == plain).all()


def test_rounds_of_three_drafts_have_the_targets_distribution(world):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION, top_p=0.9)
    tokens = world.simulation(sampling, "good", num_draft_tokens=3).run()
    assert min(world.p_values(tokens, sampling)) > 1e-4
