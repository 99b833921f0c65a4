"""Draft tokens of one sequence: as they are verified, and as they grow. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.messages import Proposal
from pilotfish.speculation.lookup.index import one_hot_probs
from pilotfish.speculation.trees.growth import Candidate
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import SamplingParams, SparseDistribution, Timings


@dataclass(frozen=True, slots=True)
class Drafts:
    """Draft tokens that continue a sequence's last committed one."""

    token_ids: tuple[int, ...] = ()
    probs: tuple[SparseDistribution, ...] = ()
    """One per token in rejection mode."""
    tree: DraftTree | None = None
    """None: each token continues the one before it."""
    confidences: tuple[float, ...] = ()
    """Probabilities that the target comes to each token of a chain that was not drawn, as the drafter sees them."""
    log_probs: tuple[float, ...] = field(default=(), compare=False)
    """Log-probability of the path to each node of a tree, as the drafter sees it. Only pilotfish.examine reads it."""
    forced: tuple[int, int] = (0, 0)
    """Place of the first token of a chain that only a grammar drafted, and the place behind the last one."""

    @classmethod
    def chosen(
        cls,
        token_ids: tuple[int, ...],
        tree: DraftTree,
        sampling: SamplingParams,
        log_probs: tuple[float, ...] = (),
    ) -> Drafts:
        """Tokens that were not drawn: all the probability is on each (see speculation/trees/branching.py)."""
        probs = one_hot_probs(token_ids, sampling)
        return cls(token_ids, probs, None if tree.is_chain else tree, log_probs=log_probs)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def shape(self) -> DraftTree:
        return DraftTree.chain(len(self)) if self.tree is None else self.tree

    def cut(self, max_depth: int, max_nodes: int) -> Drafts:
        """The drafts among the first max_nodes that continue the text by no more than max_depth tokens."""
        if self.tree is None:
            kept = max(0, min(max_depth, max_nodes))
            forced = min(self.forced[0], kept), min(self.forced[1], kept)
            return Drafts(self.token_ids[:kept], self.probs[:kept], None, self.confidences[:kept], forced=forced)
        nodes = self.tree.kept_nodes(max_depth, max_nodes)
        if len(nodes) == len(self):
            return self
        probs = tuple(self.probs[node] for node in nodes) if self.probs else ()
        return Drafts(tuple(self.token_ids[node] for node in nodes), probs, self.tree.select(nodes))

    def proposal(self, sequence_id: int, base_length: int, timings: Timings = Timings()) -> Proposal:
        """The proposal that a drafter's engine answers."""
        parents = () if self.tree is None else self.tree.parents
        return Proposal(sequence_id, base_length, self.token_ids, self.probs, timings, parents)


NO_DRAFTS = Drafts()


@dataclass(frozen=True, slots=True)
class ForcedSpan:
    """Forced text as tokens; nothing is ordinary."""

    token_ids: tuple[int, ...] = ()
    places: tuple[tuple[int, int, int], ...] = ()
    """What the drafter knows each token by, and the one that it was not sure of behind them."""


NOTHING_FORCED = ForcedSpan()


@dataclass(slots=True)
class DraftedChain:
    """Drafts that grow, each with what it was drawn from and what else the drafter thought of at its position."""

    token_ids: list[int] = field(default_factory=list)
    probs: list[SparseDistribution] = field(default_factory=list)
    """One per token in rejection mode, else none."""
    candidates: list[Sequence[Candidate]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def drafts(self) -> Drafts:
        return Drafts(tuple(self.token_ids), tuple(self.probs))

    def add(
        self, token_id: int, probs: SparseDistribution | None, candidates: Sequence[Candidate] | None = None
    ) -> None:
        """Append a draft. candidates: None where nobody asks for them, or they are asked for later."""
        self.token_ids.append(token_id)
        if candidates is not None:
            self.candidates.append(candidates)
        if probs is not None:
            self.probs.append(probs)

    def first(self, num_tokens: int) -> DraftedChain:
        return DraftedChain(self.token_ids[:num_tokens], self.probs[:num_tokens], self.candidates[:num_tokens])
