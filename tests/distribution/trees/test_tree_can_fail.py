"""Deliberately wrong rules for trees, in the same simulation and the same test: each must be caught. That the right one
is not: test_tree_lossless.py."""

import pytest

from pilotfish.speculation.sampling import rejection
from pilotfish.speculation.sampling.noise import Stream
from pilotfish.speculation.sampling.rejection import _Walk
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams

SAMPLING = SamplingParams(acceptance=AcceptanceMode.REJECTION)


@pytest.fixture
def is_caught(world, trees):
    def run(siblings="without_replacement", table="bad", sampling=SAMPLING, **fields) -> bool:
        drafter = trees.drafter(world.draft_table(table), trees.shapes["three_by_two"], siblings, **fields)
        simulation = world.simulation(sampling, table, tree_drafter=drafter, num_draws=world.num_draws // 3)
        return min(world.p_values(simulation.run(), sampling)) < 1e-6

    return run


def test_siblings_tested_against_the_original_target_are_caught(is_caught, monkeypatch):
    """The residual is kept for resampling alone."""
    descend = _Walk.descend

    def wrong(walk, left, noise, log_norm):
        original = dict(left)
        children = walk.candidates
        for index, candidate in enumerate(children):
            walk.candidates = [candidate]
            walk.left = None
            descend(walk, (residual := dict(original)), noise[index:], log_norm)
            if walk.left is None:
                return
        walk.left = residual

    monkeypatch.setattr(_Walk, "descend", wrong)
    assert is_caught()


def test_one_random_number_for_all_siblings_is_caught(is_caught, monkeypatch):
    uniform = rejection.uniform
    monkeypatch.setattr(rejection, "uniform", lambda keys, count: uniform(keys, 1).expand(-1, count))
    assert is_caught("one_hot", "good")


def test_draws_without_replacement_that_claim_the_whole_distribution_are_caught(world, trees):
    drafter = trees.drafter(world.draft_table("bad"), trees.shapes["three_by_two"], "without_replacement")

    def claims(samplings, positions, contexts):
        drafts = []
        for token_ids, probs, tree in drafter(samplings, positions, contexts):
            eldest = [tree.children[parent + 1][0] for parent in tree.parents]
            drafts.append((token_ids, [probs[node] for node in eldest], tree))
        return drafts

    simulation = world.simulation(SAMPLING, "bad", tree_drafter=claims)
    assert min(world.p_values(simulation.run(), SAMPLING)) < 1e-6


def test_resampling_from_the_target_is_caught(is_caught, monkeypatch):
    monkeypatch.setattr(rejection, "_residual", lambda target, residuals: target)
    assert is_caught()


def test_penalties_of_the_linear_prefix_are_caught(is_caught, monkeypatch):
    """Each node judged as if all nodes before it in the list were its ancestors."""
    monkeypatch.setattr(
        DraftTree, "paths", property(lambda tree: tuple(tuple(range(node)) for node in range(len(tree) + 1)))
    )
    assert is_caught("one_hot", "good", SamplingParams(repetition_penalty=2.5, frequency_penalty=1.5))


def test_drafting_with_the_noise_of_resampling_is_caught(is_caught):
    assert is_caught(draft_stream=Stream.RECOVER)


def test_the_likeliest_sampled_sibling_first_is_caught(world, trees):
    """A choice that looks at what was drawn changes what it was drawn from."""
    drafter = trees.drafter(world.draft_table("good"), trees.shapes["pair"], "with_replacement")

    def sorted_pair(samplings, positions, contexts):
        drafts = []
        for token_ids, probs, tree in drafter(samplings, positions, contexts):
            drawn_with = [
                dict(zip(of.token_ids, of.probs, strict=True))[token_id]
                for token_id, of in zip(token_ids, probs, strict=True)
            ]
            order = sorted(range(2), key=drawn_with.__getitem__, reverse=True)
            drafts.append(([token_ids[at] for at in order], [probs[at] for at in order], tree))
        return drafts

    simulation = world.simulation(SAMPLING, "good", tree_drafter=sorted_pair, num_draws=world.num_draws // 3)
    assert min(world.p_values(simulation.run(), SAMPLING)) < 1e-6
