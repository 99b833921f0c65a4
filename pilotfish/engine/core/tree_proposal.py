"""A draft tree as a drafter grows it: a level for each of its rounds.

The nodes that were expanded lie behind the sequence's tokens in the KV cache, in the order they came;
their candidates need no place there until they are expanded themselves. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.engine.core.drafts import Drafts
from pilotfish.speculation.trees.growth import Candidate, GrowingTree, GrownTree
from pilotfish.speculation.trees.tree import MAX_TREE_NODES, ROOT, DraftTree
from pilotfish.types import SamplingParams, TreeRequest


class TreeProposal:
    """The growth of one proposal's tree and which of its nodes the KV cache holds."""

    def __init__(
        self, request: TreeRequest, depth: int, *, min_confidence: float = 0.0, min_node_confidence: float = 0.0
    ) -> None:
        """depth: levels wanted, at least 1.

        min_confidence: no level follows when the target comes to the last one with less of a probability.
        min_node_confidence: nodes that it comes to with less are left out, all but the best one, and not expanded.
        """
        self._min_confidence = min_confidence
        self._max_nodes = request.max_nodes
        self._depth = min(depth, request.max_nodes)
        self._growing = GrowingTree(request.branching, min_node_confidence)
        self._grown: GrownTree | None = None
        self._expanded: list[int] = []
        self.token_ids: tuple[int, ...] = ()
        """Tokens of the expanded nodes, the root aside."""
        self.tree = DraftTree(())
        """Shape of the expanded nodes."""
        self.num_computed = 0
        """Expanded nodes, from the first on, that are in the KV cache if all tokens of the sequence are."""

    @property
    def nodes(self) -> Drafts:
        """The expanded nodes, behind the sequence's tokens."""
        return Drafts(self.token_ids, (), self.tree)

    @property
    def num_logit_rows(self) -> int:
        """Nodes whose candidates are wanted: the last ones, or the root."""
        return len(self._growing.frontier)

    @property
    def branching(self) -> int:
        return self._growing.width

    @property
    def is_done(self) -> bool:
        """Whether the tree is deep enough, or can grow no more."""
        return self._grown is not None

    def paths(self) -> list[list[int]]:
        """The tokens from the root to each node whose candidates are wanted."""
        return [self._growing.path(node) for node in self._growing.frontier]

    def extend(self, candidates: Sequence[Sequence[Candidate]]) -> None:
        """Take the candidates of each node in question."""
        self._growing.extend(candidates)
        frontier = self._growing.frontier
        is_full = len(self._expanded) + len(frontier) > MAX_TREE_NODES
        is_doubtful = self._growing.frontier_confidence < self._min_confidence
        if self._growing.num_levels == self._depth or not frontier or is_full or is_doubtful:
            self._grown = self._growing.finish(self._max_nodes)
            return
        self._expanded.extend(frontier)
        place_of = {ROOT: ROOT} | {node: place for place, node in enumerate(self._expanded)}
        self.token_ids = tuple(self._growing.token_id(node) for node in self._expanded)
        self.tree = DraftTree(tuple(place_of[self._growing.parent(node)] for node in self._expanded))

    def drafts(self, sampling: SamplingParams) -> Drafts:
        """The tree, once it is done."""
        assert self._grown is not None
        return Drafts.chosen(self._grown.token_ids, self._grown.tree, sampling, self._grown.log_probs)
