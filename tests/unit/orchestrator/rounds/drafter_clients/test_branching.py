"""Which drafts branch, and how far."""

from __future__ import annotations

import pytest

from orchestrator.rounds.drafter_clients.branching import CHAINS, Branching
from pilotfish.types import ModelInfo, TreeRequest

HEAD = ModelInfo(model_id="m", tokenizer_fingerprint="t", vocab_size=10, max_context_tokens=100, proposer="eagle3")
LARGEST = TreeRequest(16, 4)


def test_chains_may_be_drafted_ahead() -> None:
    assert CHAINS.may_draft_ahead
    assert CHAINS.request(HEAD, 5, 16) is None


def test_a_tree_that_is_asked_for_leaves_nothing_to_draft_ahead() -> None:
    branching = Branching(LARGEST)
    assert not branching.may_draft_ahead
    assert branching.request(HEAD, 5, 16) == LARGEST
    assert branching.request(HEAD, 5, 8) == TreeRequest(8, 4)


@pytest.mark.parametrize(
    ("num_free", "limit", "expected"),
    [(40, 16, 16), (40, 12, 12), (9, 16, 9), (6, 16, 6), (5, 16, None), (40, 5, None)],
)
def test_a_tree_has_the_nodes_that_are_free_if_they_are_more_than_a_chain_has(
    num_free: int, limit: int, expected: int | None
) -> None:
    branching = Branching(LARGEST, lambda _, depth: max(depth, num_free))
    assert branching.may_draft_ahead
    assert branching.request(HEAD, 5, limit) == (expected and TreeRequest(expected, 4))
