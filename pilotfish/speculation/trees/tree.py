"""Draft trees: several continuations of one text, verified in a single step. Torch-free.

A tree is the list of its nodes' parents: parents[i] is an index below i, or ROOT for a child of the
last committed token. Nodes come after their parents and siblings in the order they are tried in
(SpecInfer 2305.09781, section 4; Medusa 2401.10774, section 2.1.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

ROOT = -1
"""The parent of the nodes that continue the last committed token."""

MAX_TREE_NODES = 63
"""A row's ancestors are the bits of 64, one of them the root's."""


@dataclass(frozen=True)
class DraftTree:
    """The shape of a draft of N nodes. Raises ValueError for parents that make no tree.

    Chains may have any length, other trees at most MAX_TREE_NODES nodes.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.parents) > MAX_TREE_NODES and not self.is_chain:
            raise ValueError(f"a draft tree has {len(self.parents)} nodes; at most {MAX_TREE_NODES} are possible")
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(f"the parent of draft token {node} is {parent}; it must come before it, or be {ROOT}")

    @staticmethod
    @lru_cache
    def chain(num_nodes: int) -> DraftTree:
        """A chain, each node of which continues the one before it. Cached, with what it has computed of itself."""
        return DraftTree(tuple(range(ROOT, num_nodes - 1)))

    @classmethod
    def of_message(cls, parents: tuple[int, ...], num_nodes: int) -> DraftTree:
        """The shape of a proposal, where no parents mean a chain."""
        return cls(parents) if parents else cls.chain(num_nodes)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def is_chain(self) -> bool:
        """Whether every node continues the one before it."""
        return self.parents == tuple(range(ROOT, len(self.parents) - 1))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root, 1 for the root's children."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """The longest path in nodes; 0 without nodes."""
        return max(self.depths, default=0)

    @cached_property
    def ancestor_masks(self) -> tuple[int, ...]:
        """For the root and then each node, what it sees: bit 0 the root, bit i + 1 node i, itself included."""
        masks = [1]
        for node, parent in enumerate(self.parents):
            masks.append(masks[parent + 1] | 1 << (node + 1))
        return tuple(masks)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For the root and then each node (index i + 1), its children in the order they are tried in."""
        children: list[list[int]] = [[] for _ in range(len(self.parents) + 1)]
        for node, parent in enumerate(self.parents):
            children[parent + 1].append(node)
        return tuple(map(tuple, children))

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """For the root and then each node (index i + 1), the nodes from a child of the root to it."""
        paths: list[tuple[int, ...]] = [()]
        for node, parent in enumerate(self.parents):
            paths.append((*paths[parent + 1], node))
        return tuple(paths)

    def kept_nodes(self, max_depth: int, max_nodes: int) -> tuple[int, ...]:
        """The first max_nodes of the nodes that lie no deeper than max_depth: a tree again, see `select`."""
        shallow = [node for node, depth in enumerate(self.depths) if depth <= max_depth]
        return tuple(shallow[: max(0, max_nodes)])

    def select(self, nodes: Sequence[int]) -> DraftTree:
        """The tree of these nodes, ascending. Raises ValueError when one of them lacks its parent."""
        index_of = {ROOT: ROOT} | {node: index for index, node in enumerate(nodes)}
        if any(self.parents[node] not in index_of for node in nodes):
            raise ValueError("a node is kept without its parent")
        return DraftTree(tuple(index_of[self.parents[node]] for node in nodes))
