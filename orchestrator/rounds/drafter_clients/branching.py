"""Whether the drafts that a replica is asked for may branch, and how far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.rounds.peer import Peer
from pilotfish.speculation.trees.growth import num_growth_places
from pilotfish.types import ModelInfo, TreeRequest


@dataclass(frozen=True, slots=True)
class Branching:
    """See the module."""

    tree: TreeRequest | None = None
    """The largest tree; None: chains."""
    row_price: Callable[[ModelInfo, int], float] | None = None
    """Price of a row for that drafter's trees of so many nodes at most, see pilotfish.v1.PricedTree; 0.0: a chain.
    Rounds that draft ahead have chains. None: the whole tree always, and nothing is drafted ahead."""

    @property
    def may_draft_ahead(self) -> bool:
        """Whether a round may draft ahead: of chains only, a tree would have too many outcomes."""
        return self.tree is None or self.row_price is not None

    def request(self, peer: Peer, length: int, num_tokens: int) -> TreeRequest | None:
        """The shape of a draft of num_tokens in a row on `length` tokens; None: a chain.

        A tree has at most as many tokens as the replica takes, and grows only where its KV cache has place.
        """
        limit, capacity = peer.limits.max_draft_tokens, peer.replica.load.num_kv_tokens
        if self.tree is None or limit < 1:  # a replica may say nothing of its limits
            return None
        tree = self.tree.within(limit)
        if 0 < capacity < length + num_growth_places(tree, num_tokens):
            return None
        if self.row_price is None:
            return tree
        price = self.row_price(peer.model, tree.max_nodes)
        return tree.at(price) if price else None


CHAINS = Branching()
