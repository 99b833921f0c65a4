from __future__ import annotations

import math

from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import TreeRequest


def candidates(*probs: float) -> list[Candidate]:
    return [Candidate(10 + index, math.log(prob)) for index, prob in enumerate(probs)]


def test_levels_are_expanded_until_the_tree_is_deep_enough():
    proposal = TreeProposal(TreeRequest(max_nodes=4, branching=2), depth=3)
    assert (proposal.num_logit_rows, proposal.paths(), proposal.token_ids) == (1, [[]], ())
    assert proposal.extend([candidates(0.6, 0.3)]) is None
    assert proposal.token_ids == (10, 11)
    assert proposal.tree.parents == (-1, -1)
    assert proposal.paths() == [[10], [11]]
    assert proposal.extend([candidates(0.9, 0.05), candidates(0.8, 0.1)]) is None
    assert proposal.token_ids == (10, 11, 10, 10)
    assert proposal.tree.parents == (-1, -1, 0, 1)
    assert proposal.num_logit_rows == 2
    assert proposal.paths() == [[10, 10], [11, 10]]
    grown = proposal.extend([candidates(0.5, 0.4), candidates(0.5, 0.4)])
    assert grown is not None
    assert grown.token_ids == (10, 11, 10, 10)  # values 0.6, 0.3, 0.54, 0.27
    assert grown.tree.parents == (-1, -1, 0, 2)


def test_the_depth_is_at_most_the_number_of_nodes():
    proposal = TreeProposal(TreeRequest(max_nodes=1, branching=3), depth=5)
    grown = proposal.extend([candidates(0.5, 0.3, 0.1)])
    assert grown is not None
    assert grown.token_ids == (10,)


def test_a_tree_without_candidates_is_complete():
    proposal = TreeProposal(TreeRequest(max_nodes=8, branching=3), depth=5)
    grown = proposal.extend([[]])
    assert grown is not None
    assert grown.token_ids == ()


def test_growth_ends_where_no_mask_could_hold_more_nodes():
    proposal = TreeProposal(TreeRequest(max_nodes=60, branching=16), depth=9)
    num_levels, grown = 1, proposal.extend([candidates(*[0.05] * 16)])
    while grown is None:
        assert len(proposal.token_ids) <= 63
        num_levels += 1
        grown = proposal.extend([candidates(*[0.05] * 16)] * proposal.num_logit_rows)
    assert num_levels == 4
    assert len(grown.token_ids) == 60
