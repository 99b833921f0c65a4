"""A tree as it was recorded, and the parts of it that smaller limits leave."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.engine.core.draft_costs import Thresholds
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.examine.drafted_tree import DraftedTree
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.types import SamplingParams, TreeRequest

GREEDY = SamplingParams(temperature=0)
PATIENT = Thresholds(0.0, 0.0)
BRANCHING, DEPTH = 3, 4


def candidates(chances: list[float], path: list[int]) -> list[Candidate]:
    at = 7 * sum(path) + 3 * len(path)
    unsorted = (Candidate(each, math.log(chances[(at + each) % len(chances)])) for each in range(BRANCHING))
    return sorted(unsorted, key=lambda candidate: -candidate.log_prob)


def drafted(chances: list[float], request: TreeRequest, depth: int, thresholds: Thresholds) -> TreeProposal:
    """As a drafter grows it that says the same wherever its path leads, by the path's tokens."""
    proposal = TreeProposal(request, depth, min_confidence=thresholds.round, min_node_confidence=thresholds.node)
    while not proposal.is_done:
        proposal.extend([candidates(chances, path) for path in proposal.paths()])
    return proposal


def recorded(chances: list[float]) -> DraftedTree:
    drafts = drafted(chances, TreeRequest(63, BRANCHING), DEPTH, PATIENT).drafts(GREEDY)
    return DraftedTree(drafts.token_ids, drafts.shape.parents, drafts.log_probs)


def paths(token_ids: tuple[int, ...], parents: tuple[int, ...], nodes: list[int]) -> set[tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {-1: ()}
    for node, parent in enumerate(parents):
        found[node] = (*found[parent], token_ids[node])
    return {found[node] for node in nodes}


@given(
    chances=st.lists(st.floats(0.05, 0.9), min_size=5, max_size=11, unique=True),
    depth=st.integers(1, DEPTH),
    num_nodes=st.integers(1, 12),
    round_=st.sampled_from((0.0, 0.3, 0.8)),
    node=st.sampled_from((0.0, 0.1, 0.4)),
)
def test_a_part_is_what_would_have_been_drafted(
    chances: list[float], depth: int, num_nodes: int, round_: float, node: float
) -> None:
    tree, thresholds = recorded(chances), Thresholds(round_, node)
    nodes, passes = tree.grown(depth, num_nodes, BRANCHING, thresholds)
    proposal = drafted(chances, TreeRequest(num_nodes, BRANCHING), depth, thresholds)
    expected = proposal.drafts(GREEDY)
    ours = paths(tree.token_ids, tree.parents, sorted(nodes))
    assert ours == paths(expected.token_ids, expected.shape.parents, list(range(len(expected))))
    assert sum(passes) == len(proposal.token_ids)


def test_a_text_is_followed_down_the_tree() -> None:
    tree = DraftedTree((5, 6, 7, 8, 9), (-1, -1, 0, 1, 3), (-0.5, -1.0, -0.7, -1.2, -1.4))
    everything = frozenset(range(5))
    assert tree.chain() == [0, 2]
    assert [tree.num_accepted(everything, text) for text in ((6, 8, 9, 1), (5, 8), (4,), (6, 8, 9))] == [3, 1, 0, 3]
    assert tree.num_accepted(frozenset({0, 1, 3}), (6, 8, 9)) == 2
