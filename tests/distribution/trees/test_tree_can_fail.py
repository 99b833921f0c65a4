"""Deliberately wrong rules for trees, in the same simulation and the same test: each must be caught."""

import pytest

from pilotfish.speculation.rounds import Outcome, Round, verify
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
        simulation = world.simulation(sampling, table, tree_drafter=drafter)
        return min(world.p_values(simulation.run(), sampling)) < 1e-6

    return run


@pytest.mark.parametrize("siblings", ["without_replacement", "mixed"])
def test_the_right_rule_is_not_caught(is_caught, siblings):
    assert not is_caught(siblings)


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

    simulation = world.simulation(SAMPLING, "good", tree_drafter=sorted_pair)
    assert min(world.p_values(simulation.run(), SAMPLING)) < 1e-6


def greedy_mismatches(world, verify_function) -> int:
    """Rounds of a pair of siblings whose output is not the target's argmax sequence."""
    table, mismatches = world.target_table(), 0
    argmax = table.argmax(-1).tolist()
    for last in range(len(argmax)):
        for other in range(len(argmax)):
            drafts = [other, argmax[last]]
            round_ = Round(SamplingParams(temperature=0), 5, drafts, [], None, DraftTree((-1, -1)))
            (outcome,) = verify_function(table[[last, *drafts]], [round_])
            mismatches += outcome.token_ids != (argmax[last], argmax[argmax[last]])
    return mismatches


def only_first_child(logits, rounds):
    """Takes node i for the child of node i - 1, as in a chain."""
    return verify(logits, [Round(r.sampling, r.first_position, r.draft_token_ids, [], None) for r in rounds])


def wrong_row(logits, rounds):
    """The bonus from the first sibling's row, whichever was accepted."""
    outcomes = verify(logits, rounds)
    bonus = int(logits[1].argmax())
    return [Outcome(o.path, (*o.token_ids[:-1], bonus)) for o in outcomes]


@pytest.mark.parametrize(("rule", "is_wrong"), [(verify, False), (only_first_child, True), (wrong_row, True)])
def test_greedy_on_the_wrong_branch_is_caught(world, rule, is_wrong):
    assert (greedy_mismatches(world, rule) > 0) == is_wrong
