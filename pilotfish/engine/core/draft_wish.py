"""What is asked of a drafter that grows drafts for several sequences at once. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.engine.core.draft_costs import DEFAULT_THRESHOLDS, Thresholds
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.speculation.trees.tree import MAX_TREE_NODES
from pilotfish.types import TreeRequest


@dataclass(frozen=True, slots=True)
class DraftWish:
    """Drafts wanted after a sequence's last token."""

    sequence: EngineSequence
    num_draft_tokens: int
    """At most, in a row; at least 1. The sequence's blocks have room for them."""
    first_position: int = 0
    """Of the token in the first slot of the drafter's blocks."""
    tree: TreeRequest | None = None
    """The draft may branch. The blocks then have room for `num_tree_places` tokens."""
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    """What the draft must promise to go on."""


def num_tree_places(request: TreeRequest, depth: int) -> int:
    """Slots behind a sequence's tokens that growing a tree and verifying it takes."""
    return max(request.max_nodes, min(request.branching * (depth - 1), MAX_TREE_NODES))
