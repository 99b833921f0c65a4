"""Whether the drafts that a replica is asked for may branch, and how far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.types import ModelInfo, TreeRequest


@dataclass(frozen=True, slots=True)
class Branching:
    """See the module."""

    tree: TreeRequest | None = None
    """The largest tree; None: chains."""
    num_free_nodes: Callable[[ModelInfo, int], int] | None = None
    """Nodes of a tree by that drafter, so deep, that lengthen the target's steps only a little: trees have no more, and
    rounds that draft ahead have chains. None: the whole tree always, and nothing is drafted ahead."""

    @property
    def may_draft_ahead(self) -> bool:
        """Whether a round may draft ahead: of chains only, a tree would have too many outcomes."""
        return self.tree is None or self.num_free_nodes is not None

    def request(self, drafter: ModelInfo, num_tokens: int, limit: int) -> TreeRequest | None:
        """The shape of a draft of num_tokens in a row and at most `limit` in all; None: a chain."""
        if self.tree is None:
            return None
        if self.num_free_nodes is None:
            return self.tree.within(limit)
        num_nodes = min(self.num_free_nodes(drafter, num_tokens), limit)
        return self.tree.within(num_nodes) if num_nodes > num_tokens else None


CHAINS = Branching()
