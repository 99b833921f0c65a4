import math

import pytest

from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import SamplingParams, TreeRequest


def candidates(*probs: float) -> list[Candidate]:
    return [Candidate(10 + index, math.log(prob)) for index, prob in enumerate(probs)]


@pytest.mark.parametrize(("max_nodes", "found", "drafted"), [(1, [0.5, 0.3, 0.1], (10,)), (8, [], ())])
def test_a_tree_that_can_grow_no_more_is_done(max_nodes, found, drafted):
    proposal = TreeProposal(TreeRequest(max_nodes=max_nodes, branching=3), depth=5)
    proposal.extend([candidates(*found)])
    assert proposal.is_done
    assert proposal.drafts(SamplingParams()).token_ids == drafted


def test_growth_ends_where_no_further_node_could_be_worth_its_price():
    proposal = TreeProposal(TreeRequest(max_nodes=30, branching=3), depth=5, min_node_confidence=0.3)
    proposal.extend([candidates(0.6, 0.3, 0.1)])
    proposal.extend([candidates(0.4, 0.3, 0.2)] * proposal.num_logit_rows)
    assert proposal.is_done
    assert proposal.drafts(SamplingParams()).token_ids == (10, 11)


def test_growth_ends_where_no_mask_could_hold_more_nodes():
    proposal = TreeProposal(TreeRequest(max_nodes=60, branching=16), depth=9)
    while not proposal.is_done:
        assert len(proposal.token_ids) <= 63
        proposal.extend([candidates(*[0.05] * 16)] * proposal.num_logit_rows)
    assert len(proposal.drafts(SamplingParams())) == 60
