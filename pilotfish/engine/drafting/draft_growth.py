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
from pilotfish.engine.core.drafts import DraftedChain, Drafts
from pilotfish.engine.core.proposing import Drafted, DraftPlan, draft_next, node_rows, select
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.trees.tree import ROOT, DraftTree
from pilotfish.types import TreeRequest


@dataclass(frozen=True, slots=True)
class DraftRows:
    """Consecutive rows of one sequence in a drafter's forward."""

    first_place: int
    """Of the first row in the sequence's blocks."""
    token_ids: Sequence[int]
    block_ids: Sequence[int]
    tree: DraftTree | None = None
    """As in SequenceSlice."""


def lay_out(parts: Sequence[DraftRows]) -> tuple[list[int], list[int], list[SequenceSlice]]:
    """Token ids, positions and slices of a forward over the rows of all sequences, one after the other."""
    token_ids: list[int] = []
    positions: list[int] = []
    slices: list[SequenceSlice] = []
    for rows in parts:
        part = SequenceSlice(len(token_ids), len(rows.token_ids), rows.first_place, rows.block_ids, rows.tree)
        slices.append(part)
        token_ids.extend(rows.token_ids)
        positions.extend(part.positions())
    return token_ids, positions, slices


@dataclass(frozen=True, slots=True)
class Expansion:
    """Draft tokens of one wish after which logits are wanted."""

    wish: int
    """Index of the wish."""
    rows: DraftRows
    logit_rows: Sequence[int]
    """The rows of the last logits that the tokens come from: their parents'."""


Expand = Callable[[Sequence[Expansion]], Tensor]
"""Logits float32 [R, V_d] after the tokens of the expansions, one after the other."""


class _Chain:
    """Each token continues the one before it."""

    def __init__(self, wish: DraftWish) -> None:
        self._wish = wish
        self._chain = DraftedChain()
        self._confidence = 1.0

    @property
    def plan(self) -> DraftPlan:
        sequence = self._wish.sequence
        position = len(sequence.tokens) + len(self._chain)
        return DraftPlan([Row(sequence.sampling, position, sequence.history, constraint=sequence.grammar)], draws=True)

    @property
    def is_done(self) -> bool:
        return len(self._chain) >= self._wish.num_draft_tokens or self._confidence < self._wish.thresholds.round

    def extend(self, drafted: Drafted, confidence: float) -> None:
        (chosen,) = drafted.drafts
        self._chain.add(chosen.token_id, chosen.probs, [])
        self._confidence *= confidence
        self._wish.sequence.remember((chosen.token_id,))  # penalties and grammars look at earlier drafts

    def expansion(self, wish: int, first_logit_row: int) -> Expansion:
        sequence = self._wish.sequence
        place = len(sequence.tokens) + len(self._chain) - 1 - self._wish.first_position
        return Expansion(wish, DraftRows(place, self._chain.token_ids[-1:], sequence.block_ids), [first_logit_row])

    def drafts(self) -> Drafts:
        return self._chain.drafts


class _Tree:
    """Grown by confidence; see speculation/trees/growth.py."""

    def __init__(self, wish: DraftWish, request: TreeRequest) -> None:
        self._wish = wish
        self._proposal = TreeProposal(
            request,
            wish.num_draft_tokens,
            min_confidence=wish.thresholds.round,
            min_node_confidence=wish.thresholds.node,
        )
        self._first = self._first_parent = ROOT
        """The first of the nodes whose candidates are wanted, and of those before."""

    @property
    def plan(self) -> DraftPlan:
        rows = node_rows(self._wish.sequence, self._proposal)
        return DraftPlan(rows, draws=False, num_candidates=self._proposal.branching)

    @property
    def is_done(self) -> bool:
        return self._proposal.is_done

    def extend(self, drafted: Drafted, confidence: float) -> None:  # noqa: ARG002 -- the candidates have their own
        self._proposal.extend(drafted.candidates)
        self._first_parent, self._first = self._first, len(self._proposal.token_ids) - self._proposal.num_logit_rows

    def expansion(self, wish: int, first_logit_row: int) -> Expansion:
        sequence, tree = self._wish.sequence, self._proposal.tree
        place = len(sequence.tokens) + self._first - self._wish.first_position
        rows = DraftRows(place, self._proposal.token_ids[self._first :], sequence.block_ids, tree)
        parents = tree.parents[self._first :]
        return Expansion(wish, rows, [first_logit_row + parent - self._first_parent for parent in parents])

    def drafts(self) -> Drafts:
        return self._proposal.drafts(self._wish.sequence.sampling)


def grow_drafts(
    wishes: Sequence[DraftWish], logits: Tensor, expand: Expand, vocabulary: DraftVocabulary, *, top_m: int
) -> list[Drafts]:
    """A draft for each of the wishes.

    logits: float32 [len(wishes), V_d], what the drafter predicts after each sequence's last token.
    """
    growths = [_Chain(wish) if wish.tree is None else _Tree(wish, wish.tree) for wish in wishes]
    active = list(enumerate(growths))
    try:
        while True:
            first_rows = _extend([growth for _, growth in active], logits, vocabulary, top_m)
            expansions = [
                growth.expansion(index, first)
                for (index, growth), first in zip(active, first_rows, strict=True)
                if not growth.is_done
            ]
            if not expansions:
                break
            active = [(index, growth) for index, growth in active if not growth.is_done]
            logits = expand(expansions)
    finally:
        for wish in wishes:
            wish.sequence.recall(len(wish.sequence.tokens))
    return [growth.drafts() for growth in growths]


def _extend(growths: Sequence[_Chain | _Tree], logits: Tensor, vocabulary: DraftVocabulary, top_m: int) -> list[int]:
    """Add what the logits say to every draft; returns the first row that each of them had."""
    plans = [growth.plan for growth in growths]
    ends = list(accumulate(len(plan.rows) for plan in plans))
    first_rows = [0, *ends[:-1]]
    scores, vocabulary_ids = vocabulary.ranked(logits, [row.sampling for plan in plans for row in plan.rows])
    results = draft_next(scores, plans, top_m, vocabulary_ids)
    drawn = [(row, result.drafts[0].token_id) for row, result in zip(first_rows, results, strict=True) if result.drafts]
    confidences = dict(zip((row for row, _ in drawn), _confidences(logits, drawn, vocabulary), strict=True))
    for growth, row, result in zip(growths, first_rows, results, strict=True):
        growth.extend(result, confidences.get(row, 1.0))
    return first_rows


def _confidences(logits: Tensor, drawn: Sequence[tuple[int, int]], vocabulary: DraftVocabulary) -> list[float]:
    """The drafter's own probability of each (row, token id)."""
    if not drawn:
        return []
    logits = select(logits, [row for row, _ in drawn])
    columns = vocabulary.columns(to_device([[token_id] for _, token_id in drawn], torch.int64, logits.device))
    confidences: list[float] = (
        (logits.gather(1, columns) - logits.logsumexp(1, keepdim=True)).exp_().squeeze(1).tolist()
    )
    return confidences
