"""Every mode, every shape, every way to fill it: the output has the target's distribution."""

import pytest
import torch

from pilotfish.speculation.rounds import Round, verify
from pilotfish.types import AcceptanceMode, SamplingParams

PENALTIES = {"repetition_penalty": 1.4, "presence_penalty": 0.7, "frequency_penalty": 0.4}
TRUNCATED = {"temperature": 1.2, "top_k": 9, "top_p": 0.9}


def simulate(world, trees, sampling, shape, siblings, table="good", **fields):
    drafter = trees.drafter(world.draft_table(table), trees.shapes[shape], siblings)
    return world.simulation(sampling, table, tree_drafter=drafter, **fields)


@pytest.mark.parametrize("siblings", ["one_hot", "without_replacement", "with_replacement", "mixed"])
@pytest.mark.parametrize("shape", ["pair", "three_by_two", "deep"])
def test_rejection_has_the_targets_distribution(world, trees, shape, siblings):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION)
    tokens = simulate(world, trees, sampling, shape, siblings).run()
    assert min(world.p_values(tokens, sampling)) > 1e-4


@pytest.mark.parametrize("post_processing", [PENALTIES, TRUNCATED], ids=["penalties", "truncated"])
@pytest.mark.parametrize("siblings", ["without_replacement", "mixed"])
def test_each_node_is_judged_by_its_own_path(world, trees, siblings, post_processing):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION, **post_processing)
    tokens = simulate(world, trees, sampling, "three_by_two", siblings).run()
    assert min(world.p_values(tokens, sampling)) > 1e-4


def test_a_bad_drafter_costs_acceptance_only_and_siblings_are_accepted_more_often_than_one(world, trees):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION)
    good = simulate(world, trees, sampling, "three_by_two", "without_replacement", num_tokens=1)
    bad = simulate(world, trees, sampling, "three_by_two", "without_replacement", "bad")
    chain = world.simulation(sampling, "bad", num_tokens=1)
    good.run()
    chain.run()
    assert min(world.p_values(bad.run(), sampling)) > 1e-4
    assert good.num_accepted > 1.3 * bad.num_accepted > 1.3 * 1.2 * chain.num_accepted


@pytest.mark.parametrize("post_processing", [{}, PENALTIES], ids=["plain", "penalties"])
@pytest.mark.parametrize("siblings", ["one_hot", "without_replacement"])
def test_coupled_output_does_not_depend_on_the_tree(world, trees, siblings, post_processing):
    """What is said without drafts has the target's distribution: ../test_lossless.py."""
    sampling, num_draws = SamplingParams(**post_processing), world.num_draws // 4
    plain = world.simulation(sampling, "good", num_draft_tokens=0, num_draws=num_draws).run()
    simulation = simulate(world, trees, sampling, "deep", siblings, num_draws=num_draws)
    assert (simulation.run() == plain).all()
    assert simulation.num_accepted > 0.5 * num_draws


@pytest.mark.parametrize("shape", ["pair", "three_by_two", "deep"])
def test_greedy_output_is_the_argmax_chain(world, trees, shape):
    """Over every last token and thousands of trees."""
    table = world.target_table()
    argmax = table.argmax(-1).tolist()
    drafter = trees.drafter(world.draft_table("good"), trees.shapes[shape], "without_replacement")
    sampling = SamplingParams(temperature=0, acceptance=AcceptanceMode.REJECTION)
    lasts = [index % len(argmax) for index in range(2400)]
    drafts = drafter([sampling] * len(lasts), list(range(len(lasts))), [[last] for last in lasts])
    rounds = [Round(sampling, 9, token_ids, [], None, tree) for token_ids, _, tree in drafts]
    rows = [row for last, round_ in zip(lasts, rounds, strict=True) for row in (last, *round_.draft_token_ids)]
    outcomes = verify(table[torch.tensor(rows)], rounds)
    for last, outcome in zip(lasts, outcomes, strict=True):
        expected = [last]
        while len(expected) <= len(outcome.token_ids):
            expected.append(argmax[expected[-1]])
        assert list(outcome.token_ids) == expected[1:]
    assert {outcome.num_accepted for outcome in outcomes} == set(range(trees.shapes[shape].depth + 1))
