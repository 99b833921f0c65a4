"""A tree that a drafter drafted as large as it could, and the part of it that a target would have asked for. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pilotfish.engine.core.draft_costs import Thresholds
from pilotfish.speculation.trees.growth import least_log_prob
from pilotfish.speculation.trees.tree import ROOT, DraftTree


@dataclass(frozen=True)
class DraftedTree:
    """Parents are before their children, of which the drafter's favourite comes first."""

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    """ROOT for the first tokens."""
    log_probs: tuple[float, ...]
    """Log-probability of the path to each node, as the drafter sees it."""

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        """Children of the root, then of each node."""
        return DraftTree(self.parents).children

    @cached_property
    def _levels(self) -> list[list[int]]:
        levels: list[list[int]] = []
        depths: list[int] = []
        for node, parent in enumerate(self.parents):
            depths.append(0 if parent == ROOT else depths[parent] + 1)
            if depths[-1] == len(levels):
                levels.append([])
            levels[depths[-1]].append(node)
        return levels

    def chain(self) -> list[int]:
        """The nodes of the chain that the drafter would have drafted."""
        nodes: list[int] = []
        while children := self._children[nodes[-1] + 1 if nodes else 0]:
            nodes.append(children[0])
        return nodes

    def grown(
        self, depth: int, max_nodes: int, branching: int, thresholds: Thresholds
    ) -> tuple[frozenset[int], list[int]]:
        """The nodes of a tree of these limits, and how many of them each further pass of the drafter ran: as
        TreeProposal grows it."""
        seen: list[int] = []
        passes: list[int] = []
        frontier: list[int] = []
        least = least_log_prob(thresholds.node)
        for level in self._levels[: min(depth, max_nodes)]:
            grown = level
            if seen:
                passes.append(len(frontier))
                grown = [node for node in level if self.parents[node] in frontier]
            seen += grown
            best = self._best(grown, branching)
            frontier = [node for node in best if self.log_probs[node] >= least]
            if not frontier or sum(math.exp(self.log_probs[node]) for node in best) < thresholds.round:
                break
        kept = [node for node in self._best(seen, max_nodes) if self.log_probs[node] >= least]
        return frozenset(kept or self._best(seen, 1)), passes

    def num_accepted(self, nodes: frozenset[int], token_ids: Sequence[int]) -> int:
        """Tokens of the text that these nodes have foreseen."""
        node = ROOT
        for place, token_id in enumerate(token_ids):
            children = (child for child in self._children[node + 1] if child in nodes)
            found = next((child for child in children if self.token_ids[child] == token_id), None)
            if found is None:
                return place
            node = found
        return len(token_ids)

    def _best(self, nodes: Sequence[int], count: int) -> list[int]:
        return sorted(nodes, key=lambda node: (-self.log_probs[node], node))[:count]
