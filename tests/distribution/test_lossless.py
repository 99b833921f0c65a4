"""Every mode, every drafter, every post-processing: the output has the target's distribution."""

import pytest

from pilotfish.types import AcceptanceMode, SamplingParams

DRAFTERS = ("good", "bad", "one_hot", "top_m", "identical")
POST_PROCESSING = {
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.1},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    "bias": {"logit_bias": ((2, 1.5), (7, -100.0))},
    "allowed": {"allowed_token_ids": (1, 2, 4, 7), "logit_bias": ((2, 1.5), (3, 50.0))},
    "all": {
        "temperature": 1.3,
        "top_k": 9,
        "top_p": 0.95,
        "min_p": 0.03,
        "repetition_penalty": 1.2,
        "presence_penalty": -0.3,
        "frequency_penalty": 0.5,
        "logit_bias": ((1, 1.0),),
    },
}


@pytest.mark.parametrize("post_processing", POST_PROCESSING)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_rejection_has_the_targets_distribution(world, drafter, post_processing):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION, **POST_PROCESSING[post_processing])
    tokens = world.simulation(sampling, drafter).run()
    marginal, joint = world.p_values(tokens, sampling)
    assert marginal > 1e-4
    assert joint > 1e-4


@pytest.mark.parametrize("post_processing", POST_PROCESSING)
def test_coupled_output_has_the_targets_distribution_whatever_drafts(world, post_processing):
    """Without drafts it has it, and no drafter changes a token."""
    sampling = SamplingParams(**POST_PROCESSING[post_processing])
    assert sampling.acceptance is AcceptanceMode.COUPLED
    plain = world.simulation(sampling, "good", num_draft_tokens=0).run()
    assert min(world.p_values(plain, sampling)) > 1e-4
    for drafter in DRAFTERS:
        tokens = world.simulation(sampling, drafter, num_draws=world.num_draws // 5).run()
        assert (tokens == plain[: len(tokens)]).all(), drafter


@pytest.mark.parametrize("mode", AcceptanceMode, ids=lambda mode: mode.name.lower())
def test_plain_decoding_has_the_targets_distribution(world, mode):
    sampling = SamplingParams(acceptance=mode)
    tokens = world.simulation(sampling, "good", num_draft_tokens=0).run()
    assert min(world.p_values(tokens, sampling)) > 1e-4
