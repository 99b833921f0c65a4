"""Drafts grown token by token, or level by level, as far as the drafter trusts them.

Several sequences grow at once: each round asks the drafter for logits after the newest tokens of all
drafts that go on. What it has computed for a tree lies behind the sequence's tokens, in the order it came.

Legend: R rows, one per node whose next tokens are wanted; V_d draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.sequence import Drafts
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.drafting import Draft, DraftRow, draft
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.trees.branching import branch
from pilotfish.speculation.trees.growth import Candidate, GrownTree
from pilotfish.speculation.trees.tree import ROOT, DraftTree
from pilotfish.types import AcceptanceMode, SparseDistribution, TreeRequest


@dataclass(frozen=True, slots=True)
class Expansion:
    """Draft tokens of one wish after which logits are wanted."""

    wish: int
    """Index of the wish."""
    token_ids: Sequence[int]
    logit_rows: Sequence[int]
    """The rows of the last logits that the tokens come from: their parents'."""
    first_place: int
    """Of the first token behind the sequence's first one."""
    tree: DraftTree | None

    def slice(self, first_row: int, block_ids: Sequence[int], first_position: int = 0) -> SequenceSlice:
        """As rows of a forward from first_row on; first_position: of the token in the first slot of the blocks."""
        return SequenceSlice(first_row, len(self.token_ids), self.first_place - first_position, block_ids, self.tree)


def last_token(wish: DraftWish, index: int) -> Expansion:
    """The last token of a wish's sequence, for drafters that have yet to run it."""
    sequence = wish.sequence
    return Expansion(index, sequence.tokens[-1:], (), len(sequence.tokens) - 1, None)


Expand = Callable[[Sequence[Expansion]], Tensor]
"""Logits float32 [R, V_d] after the tokens of the expansions, one after the other."""


class _Chain:
    """Each token continues the one before it."""

    num_rows = 1

    def __init__(self, wish: DraftWish) -> None:
        self._wish = wish
        self._token_ids: list[int] = []
        self._probs: list[SparseDistribution] = []
        self._confidence = 1.0

    @property
    def row(self) -> DraftRow:
        sequence = self._wish.sequence
        position = len(sequence.tokens) + len(self._token_ids)
        return DraftRow(sequence.sampling, position, sequence.history, constraint=sequence.grammar)

    @property
    def is_done(self) -> bool:
        return len(self._token_ids) >= self._wish.num_draft_tokens or self._confidence < self._wish.thresholds.round

    def extend(self, drafted: Draft, confidence: float) -> None:
        self._token_ids.append(drafted.token_id)
        if drafted.probs is not None:
            self._probs.append(drafted.probs)
        self._confidence *= confidence
        self._wish.sequence.remember((drafted.token_id,))  # penalties and grammars look at earlier drafts

    def expansion(self, wish: int, first_logit_row: int) -> Expansion:
        place = len(self._wish.sequence.tokens) + len(self._token_ids) - 1
        return Expansion(wish, self._token_ids[-1:], [first_logit_row], place, None)

    def drafts(self) -> Drafts:
        return Drafts(tuple(self._token_ids), tuple(self._probs))


class _Tree:
    """Grown by confidence; see speculation/trees/growth.py."""

    def __init__(self, wish: DraftWish, request: TreeRequest) -> None:
        self._sequence = wish.sequence
        self._proposal = TreeProposal(
            request,
            wish.num_draft_tokens,
            min_confidence=wish.thresholds.round,
            min_node_confidence=wish.thresholds.node,
        )
        self._first = self._first_parent = ROOT
        """The first of the nodes whose candidates are wanted, and of those before."""
        self._grown: GrownTree | None = None

    @property
    def num_rows(self) -> int:
        return self._proposal.num_logit_rows

    @property
    def branching(self) -> int:
        return self._proposal.branching

    @property
    def rows(self) -> list[Row]:
        sequence, length = self._sequence, len(self._sequence.tokens)
        return [
            Row(sequence.sampling, length + len(path), sequence.history, path, sequence.grammar)
            for path in self._proposal.paths()
        ]

    @property
    def is_done(self) -> bool:
        return self._grown is not None

    def extend(self, candidates: Sequence[Sequence[Candidate]]) -> None:
        self._grown = self._proposal.extend(candidates)
        self._first_parent, self._first = self._first, len(self._proposal.token_ids) - self.num_rows

    def expansion(self, wish: int, first_logit_row: int) -> Expansion:
        tree = self._proposal.tree
        return Expansion(
            wish,
            self._proposal.token_ids[self._first :],
            [first_logit_row + parent - self._first_parent for parent in tree.parents[self._first :]],
            len(self._sequence.tokens) + self._first,
            tree,
        )

    def drafts(self) -> Drafts:
        assert self._grown is not None
        token_ids, tree, sampling = self._grown.token_ids, self._grown.tree, self._sequence.sampling
        probs: tuple[SparseDistribution, ...] = ()
        if sampling.acceptance is AcceptanceMode.REJECTION and not sampling.is_greedy:
            # Chosen, not drawn: all the probability is on the token itself (see speculation/trees/branching.py).
            probs = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in token_ids)
        return Drafts(token_ids, probs, None if tree.is_chain else tree)


_Growth = _Chain | _Tree


def grow_drafts(
    wishes: Sequence[DraftWish], logits: Tensor, expand: Expand, vocabulary: DraftVocabulary, *, top_m: int
) -> list[Drafts]:
    """A draft for each of the wishes.

    logits: float32 [len(wishes), V_d], what the drafter predicts after each sequence's last token.
    """
    growths = [_Chain(wish) if wish.tree is None else _Tree(wish, wish.tree) for wish in wishes]
    active = list(range(len(growths)))
    try:
        while True:
            first_rows = _extend([growths[index] for index in active], logits, vocabulary, top_m)
            going_on = [
                (index, first) for index, first in zip(active, first_rows, strict=True) if not growths[index].is_done
            ]
            if not going_on:
                break
            active = [index for index, _ in going_on]
            logits = expand([growths[index].expansion(index, first) for index, first in going_on])
    finally:
        for wish in wishes:
            wish.sequence.recall(len(wish.sequence.tokens))
    return [growth.drafts() for growth in growths]


def _extend(growths: Sequence[_Growth], logits: Tensor, vocabulary: DraftVocabulary, top_m: int) -> list[int]:
    """Add what the logits say to every draft; returns the first row that each of them had."""
    ends = list(accumulate(growth.num_rows for growth in growths))
    first_rows = [0, *ends[:-1]]
    chains = [(growth, row) for growth, row in zip(growths, first_rows, strict=True) if isinstance(growth, _Chain)]
    trees = [(growth, row) for growth, row in zip(growths, first_rows, strict=True) if isinstance(growth, _Tree)]
    tree_rows = [row + offset for growth, row in trees for offset in range(growth.num_rows)]
    if chains:
        _extend_chains([growth for growth, _ in chains], _select(logits, [row for _, row in chains]), vocabulary, top_m)
    if trees:
        _extend_trees([growth for growth, _ in trees], _select(logits, tree_rows), vocabulary)
    return first_rows


def _select(logits: Tensor, rows: list[int]) -> Tensor:
    if len(rows) == logits.shape[0]:
        return logits
    return logits.index_select(0, to_device(rows, torch.int64, logits.device))


def _extend_chains(chains: Sequence[_Chain], logits: Tensor, vocabulary: DraftVocabulary, top_m: int) -> None:
    spread = vocabulary.spread(logits)
    drafts = draft(spread, [chain.row for chain in chains], top_m)
    chosen = to_device([[drafted.token_id] for drafted in drafts], torch.int64, logits.device)
    confidences = (spread.gather(1, chosen) - logits.logsumexp(1, keepdim=True)).exp_().squeeze(1).tolist()
    for chain, drafted, confidence in zip(chains, drafts, confidences, strict=True):
        chain.extend(drafted, confidence)


def _extend_trees(trees: Sequence[_Tree], logits: Tensor, vocabulary: DraftVocabulary) -> None:
    rows = [row for tree in trees for row in tree.rows]
    candidates = iter(branch(vocabulary.spread(logits), rows, max(tree.branching for tree in trees)))
    for tree in trees:
        tree.extend([next(candidates)[: tree.branching] for _ in range(tree.num_rows)])
