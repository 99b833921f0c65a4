from __future__ import annotations

import math

import pytest

from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import SamplingParams, TreeRequest


def candidates(*probs: float) -> list[Candidate]:
    return [Candidate(10 + index, math.log(prob)) for index, prob in enumerate(probs)]


def test_levels_are_expanded_until_the_tree_is_deep_enough():
    proposal = TreeProposal(TreeRequest(max_nodes=4, branching=2), depth=3)
    assert (proposal.num_logit_rows, proposal.paths(), proposal.token_ids) == (1, [[]], ())
    proposal.extend([candidates(0.6, 0.3)])
    assert proposal.token_ids == (10, 11)
    assert proposal.tree.parents == (-1, -1)
    assert proposal.paths() == [[10], [11]]
    proposal.extend([candidates(0.9, 0.05), candidates(0.8, 0.1)])
    assert proposal.token_ids == (10, 11, 10, 10)
    assert proposal.tree.parents == (-1, -1, 0, 1)
    assert proposal.paths() == [[10, 10], [11, 10]]
    assert not proposal.is_done
    proposal.extend([candidates(0.5, 0.4), candidates(0.5, 0.4)])
    drafts = proposal.drafts(SamplingParams())
    assert drafts.token_ids == (10, 11, 10, 10)  # values 0.6, 0.3, 0.54, 0.27
    assert drafts.shape.parents == (-1, -1, 0, 2)


@pytest.mark.parametrize(("max_nodes", "found", "drafted"), [(1, [0.5, 0.3, 0.1], (10,)), (8, [], ())])
def test_a_tree_that_can_grow_no_more_is_done(max_nodes, found, drafted):
    proposal = TreeProposal(TreeRequest(max_nodes=max_nodes, branching=3), depth=5)
    proposal.extend([candidates(*found)])
    assert proposal.is_done
    assert proposal.drafts(SamplingParams()).token_ids == drafted


def test_growth_ends_where_no_mask_could_hold_more_nodes():
    proposal = TreeProposal(TreeRequest(max_nodes=60, branching=16), depth=9)
    while not proposal.is_done:
        assert len(proposal.token_ids) <= 63
        proposal.extend([candidates(*[0.05] * 16)] * proposal.num_logit_rows)
    assert len(proposal.drafts(SamplingParams())) == 60
