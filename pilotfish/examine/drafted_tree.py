"""A tree that a drafter drafted as large as it could, and the part of it that a target would have asked for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pilotfish.engine.core.draft_costs import Thresholds
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.speculation.trees.tree import ROOT, DraftTree
from pilotfish.types import SamplingParams, TreeRequest

_GREEDY = SamplingParams(temperature=0)
"""Which nodes a tree has does not depend on how the target samples."""


@dataclass(frozen=True)
class DraftedTree:
    """Parents are before their children, of which the drafter's favourite comes first."""

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    """ROOT for the first tokens."""
    log_probs: tuple[float, ...]
    """Log-probability of the path to each node, as the drafter sees it."""

    @cached_property
    def _tree(self) -> DraftTree:
        return DraftTree(self.parents)

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        """Children of the root, then of each node."""
        return self._tree.children

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
        TreeProposal grows it of the nodes there are, each of which stands for its token."""
        growing = TreeProposal(
            TreeRequest(max_nodes, branching),
            min(depth, self._tree.depth),
            min_confidence=thresholds.round,
            min_node_confidence=thresholds.node,
        )
        growing.extend([self._candidates(ROOT)])
        passes: list[int] = []
        while not growing.is_done:
            passes.append(growing.num_logit_rows)
            growing.extend([self._candidates(path[-1]) for path in growing.paths()])
        return frozenset(growing.drafts(_GREEDY).token_ids), passes

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

    def _candidates(self, node: int) -> list[Candidate]:
        """What the drafter found to follow a node."""
        before = 0.0 if node == ROOT else self.log_probs[node]
        return [Candidate(child, self.log_probs[child] - before) for child in self._children[node + 1]]
