"""Confidence-grown draft trees (EAGLE-2, 2406.16858, section 4): expand what is likely, keep what is likeliest.

A node's value is the probability of its whole path, as the drafter sees it. Each level expands the
best `width` nodes of the level before; at the end the best nodes of all levels stay. As no node is
worth more than its parent, these make a tree. Torch-free and deterministic: equals go by age.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pilotfish.speculation.trees.tree import MAX_TREE_NODES, ROOT, DraftTree
from pilotfish.types import TreeRequest


class Candidate(msgspec.Struct, frozen=True):
    """A possible next token of one node."""

    token_id: int
    log_prob: float
    """Confidence that the target says it after this node: at most 0."""


@dataclass(frozen=True, slots=True)
class GrownTree:
    """What growth came to."""

    token_ids: tuple[int, ...]
    tree: DraftTree
    nodes: tuple[int, ...]
    """The growing tree's index of each node."""
    log_probs: tuple[float, ...]
    """Log-probability of the path to each node, as the drafter sees it."""


def least_log_prob(confidence: float) -> float:
    """Log-probability of a path that the target comes to with at least this probability; 0.0: of any."""
    return math.log(confidence) if confidence > 0 else -math.inf


def num_growth_places(request: TreeRequest, depth: int) -> int:
    """Slots behind a sequence's tokens that growing a tree takes: the last level is not expanded."""
    return min(request.branching * (depth - 1), MAX_TREE_NODES)


class GrowingTree:
    """A tree that gains a level for each round of the drafter.

    `frontier` says which nodes the drafter is to run (first the root); `extend` takes their candidates.
    """

    def __init__(self, width: int, min_confidence: float = 0.0) -> None:
        """width: nodes expanded in each level, at least 1.

        min_confidence: only nodes that the target comes to with such a probability are expanded, and kept at the end.
        """
        if width < 1:
            raise ValueError(f"width is {width}; it must be at least 1")
        self.width = width
        self._least = least_log_prob(min_confidence)
        self._token_ids: list[int] = []
        self._parents: list[int] = []
        self._values: list[float] = []
        self.frontier: tuple[int, ...] = (ROOT,)
        """Nodes to expand next, oldest first; the root before the first level, nothing when no level can follow."""
        self.frontier_confidence = 1.0
        """Probability that the target comes to one of the last level's best `width` nodes, as the drafter sees it."""
        self.num_levels = 0

    def __len__(self) -> int:
        """Candidates seen, kept or not."""
        return len(self._parents)

    def token_id(self, node: int) -> int:
        return self._token_ids[node]

    def parent(self, node: int) -> int:
        return self._parents[node]

    def path(self, node: int) -> list[int]:
        """Token ids from a child of the root down to node; none for the root."""
        token_ids = []
        while node != ROOT:
            token_ids.append(self._token_ids[node])
            node = self._parents[node]
        return token_ids[::-1]

    def extend(self, candidates: Sequence[Sequence[Candidate]]) -> None:
        """Add the children of each frontier node, in the order of `frontier`, and choose the next frontier.

        Raises ValueError when there is not one list per frontier node.
        """
        first = len(self._parents)
        for node, children in zip(self.frontier, candidates, strict=True):
            value = 0.0 if node == ROOT else self._values[node]
            for child in children:
                self._token_ids.append(child.token_id)
                self._parents.append(node)
                self._values.append(value + min(child.log_prob, 0.0))
        best = self._best(range(first, len(self._parents)), self.width)
        self.frontier_confidence = sum(math.exp(self._values[node]) for node in best)
        self.frontier = tuple(node for node in best if self._values[node] >= self._least)
        self.num_levels += 1

    def finish(self, max_nodes: int) -> GrownTree:
        """The best max_nodes nodes (at most MAX_TREE_NODES), level by level, each node's likeliest child first.

        Of them only the best one, and those that the target comes to with the min_confidence of this tree.
        """
        best = self._best(range(len(self._parents)), min(max_nodes, MAX_TREE_NODES))
        kept = tuple(node for node in best if self._values[node] >= self._least)
        kept = kept or self._best(range(len(self._parents)), 1)
        index_of = {ROOT: ROOT} | {node: index for index, node in enumerate(kept)}
        tree = DraftTree(tuple(index_of[self._parents[node]] for node in kept))
        token_ids = tuple(self._token_ids[node] for node in kept)
        return GrownTree(token_ids, tree, kept, tuple(self._values[node] for node in kept))

    def _best(self, nodes: range, count: int) -> tuple[int, ...]:
        """The count nodes of most value, the older of equals (so a parent before its child), by age."""
        ranked = sorted(nodes, key=lambda node: (-self._values[node], node))
        return tuple(sorted(ranked[:count]))
