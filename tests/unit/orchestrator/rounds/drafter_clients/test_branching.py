"""Which drafts branch, and how far."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.rounds.drafter_clients.branching import CHAINS, Branching
from orchestrator.rounds.peer import Peer
from pilotfish.types import Limits, LoadReport, ModelInfo, TreeRequest

LARGEST = TreeRequest(16, 4)


@pytest.fixture
def peer_of(memory_link) -> Callable[..., Peer]:
    """A sequence's place on a replica that takes so many draft tokens."""

    def make(max_draft_tokens: int, num_kv_blocks: int = 0) -> Peer:
        link = memory_link("draft")
        link.limits = Limits(max_draft_tokens=max_draft_tokens, max_sequences=64)
        link.load = LoadReport(num_kv_blocks_total=num_kv_blocks)
        return Peer(link)

    return make


def test_chains_may_be_drafted_ahead(peer_of) -> None:
    assert CHAINS.may_draft_ahead
    assert CHAINS.request(peer_of(16), 100, 5) is None


def test_a_tree_that_is_asked_for_leaves_nothing_to_draft_ahead(peer_of) -> None:
    branching = Branching(LARGEST)
    assert not branching.may_draft_ahead
    assert branching.request(peer_of(32), 100, 5) == LARGEST
    assert branching.request(peer_of(8), 100, 5) == TreeRequest(8, 4)
    assert branching.request(peer_of(0), 100, 5) is None


@pytest.mark.parametrize(
    ("limit", "price", "expected"),
    [(32, 0.05, (16, 0.05)), (8, 0.1, (8, 0.1)), (8, 0.0, None)],
)
def test_a_priced_tree_has_the_price_of_rows_within_the_limit(
    peer_of, limit: int, price: float, expected: tuple[int, float] | None
) -> None:
    asked: list[tuple[ModelInfo, int]] = []

    def row_price(drafter: ModelInfo, max_nodes: int) -> float:
        asked.append((drafter, max_nodes))
        return price

    branching, peer = Branching(LARGEST, row_price), peer_of(limit)
    assert branching.may_draft_ahead
    assert branching.request(peer, 100, 5) == (expected and TreeRequest(expected[0], 4, expected[1]))
    assert asked == [(peer.model, min(16, limit))]


@pytest.mark.parametrize("branching", [Branching(LARGEST), Branching(LARGEST, lambda _, max_nodes: 0.1)])
@pytest.mark.parametrize(("num_tokens", "num_places"), [(5, 16), (7, 24)])  # four nodes of each level but the last
def test_what_the_replica_has_no_place_for_is_a_chain(peer_of, branching, num_tokens: int, num_places: int) -> None:
    peer = peer_of(32, 4)
    assert branching.request(peer, 64 - num_places, num_tokens) is not None
    assert branching.request(peer, 65 - num_places, num_tokens) is None
