"""Drafts grown token by token, or level by level, as far as the drafter trusts them.

Several sequences grow at once: each round asks the drafter for logits after the newest tokens of all
drafts that go on. What it has computed for a tree lies behind the sequence's tokens, in the order it came.

Legend: T rows; R rows, one per node whose next tokens are wanted; V_d draft vocabulary, H hidden size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import accumulate, compress

import msgspec
import torch
from msgspec.structs import replace
from torch import Tensor

from pilotfish.engine.core.draft_costs import Thresholds
from pilotfish.engine.core.drafted import Drafted
from pilotfish.engine.core.drafts import DraftedChain, Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.proposing import DraftPlan, draft_next, node_rows, row_of
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.feature_head import FeatureHead, HeadOutput, HeadStep
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.lookup.index import needs_draft_probs
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.trees.tree import ROOT, DraftTree
from pilotfish.types import TreeRequest


class DraftRows(msgspec.Struct, frozen=True):
    """Consecutive rows of one sequence in a drafter's forward."""

    first_place: int
    """Place of the first row in the sequence's blocks."""
    token_ids: Sequence[int]
    block_ids: Sequence[int]
    tree: DraftTree | None = None
    """Tree of the nodes, as in SequenceSlice."""
    logit_rows: Sequence[int] = ()
    """Rows of the last logits that the draft tokens come from: their parents'."""
    states: list[Tensor] | None = None
    """Gets the last row's hidden state, [1, H]."""


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


Expand = Callable[[Sequence[DraftRows]], Tensor]
"""Logits float32 [R, V_d] after the draft tokens of the rows, one after the other."""


class _Chain:
    """A growing draft in which each token continues the one before it."""

    def __init__(self, wish: DraftWish) -> None:
        self._wish = wish
        self._chain = DraftedChain()
        # The shared noise makes a drafter twice as sure as it may be: where it says 0.65, 0.40 are accepted.
        self._weight = 1 if wish.sequence.sampling.is_greedy else 2
        self.confidences: list[float] = []
        """Probabilities that the target comes to each token."""
        self.is_done = False

    @property
    def plan(self) -> DraftPlan:
        sequence = self._wish.sequence
        draws = needs_draft_probs(sequence.sampling)
        row = row_of(sequence, (), len(sequence.tokens), num_drafts=len(self._chain))
        return DraftPlan([row], draws, num_candidates=0 if draws else 1)

    def extend(self, drafted: Drafted) -> None:
        if drafted.drafts:
            (chosen,) = drafted.drafts
            token_id, probs = chosen.token_id, chosen.probs
            assert probs is not None
            confidence = dict(zip(probs.token_ids, probs.probs, strict=True))[token_id]
        elif drafted.candidates[0]:
            (best,) = drafted.candidates[0]
            token_id, probs, confidence = best.token_id, None, math.exp(self._weight * best.log_prob)
        else:
            self.is_done = True  # a grammar allows nothing that the drafter knows
            return
        self._chain.add(token_id, probs)
        self.confidences.append(confidence * (self.confidences[-1] if self.confidences else 1.0))
        self.is_done = len(self._chain) >= self._wish.num_draft_tokens
        self._wish.sequence.remember((token_id,))  # penalties and grammars look at earlier drafts

    def expansion(self, first_logit_row: int) -> DraftRows:
        sequence = self._wish.sequence
        place = len(sequence.tokens) + len(self._chain) - 1 - self._wish.first_position
        return DraftRows(
            place, self._chain.token_ids[-1:], sequence.block_ids, None, [first_logit_row], self._wish.states
        )

    def drafts(self) -> Drafts:
        # What was drawn is verified: to leave it out for what it is would bend the distribution.
        confidences = () if self._chain.probs else tuple(self.confidences)
        return dataclasses.replace(self._chain.drafts, confidences=confidences)


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

    def extend(self, drafted: Drafted) -> None:
        self._proposal.extend(drafted.candidates)
        self._first_parent = self._first
        self._first = len(self._proposal.token_ids) - self._proposal.num_logit_rows

    def expansion(self, first_logit_row: int) -> DraftRows:
        sequence, tree = self._wish.sequence, self._proposal.tree
        place = len(sequence.tokens) + self._first - self._wish.first_position
        logit_rows = [first_logit_row + parent - self._first_parent for parent in tree.parents[self._first :]]
        token_ids = self._proposal.token_ids[self._first :]
        return DraftRows(place, token_ids, sequence.block_ids, tree, logit_rows)

    def drafts(self) -> Drafts:
        return self._proposal.drafts(self._wish.sequence.sampling)


def grow_drafts(
    wishes: Sequence[DraftWish], logits: Tensor, expand: Expand, vocabulary: DraftVocabulary, *, top_m: int
) -> list[Drafts]:
    """A draft for each of the wishes.

    logits: float32 [len(wishes), V_d], what the drafter predicts after each sequence's last token.
    """
    growths = [_Chain(wish) if wish.tree is None else _Tree(wish, wish.tree) for wish in wishes]
    active = growths
    try:
        while True:
            first_rows = _extend(active, logits, vocabulary, top_m)
            going = _going_on(growths, active, wishes[0].thresholds)
            if not any(going):
                break
            rows = zip(active, first_rows, strict=True)
            expansions = [growth.expansion(first) for growth, first in compress(rows, going)]
            active = list(compress(active, going))
            logits = expand(expansions)
    finally:
        for wish in wishes:
            wish.sequence.recall(len(wish.sequence.tokens))
    return [growth.drafts() for growth in growths]


def _going_on(
    growths: Sequence[_Chain | _Tree], active: Sequence[_Chain | _Tree], thresholds: Thresholds
) -> list[bool]:
    """Whether another round continues each active one. A tree decides by itself; chains are compared with each
    other."""
    newest = [growth.confidences[-1] for growth in active if isinstance(growth, _Chain) and not growth.is_done]
    drafted = [each for growth in growths if isinstance(growth, _Chain) for each in growth.confidences]
    least = thresholds.least(drafted, newest) if newest else 0.0
    return [not growth.is_done and (isinstance(growth, _Tree) or growth.confidences[-1] >= least) for growth in active]


def _extend(growths: Sequence[_Chain | _Tree], logits: Tensor, vocabulary: DraftVocabulary, top_m: int) -> list[int]:
    """Add what the logits say to every draft; returns the first row that each of them had."""
    plans = [growth.plan for growth in growths]
    ends = list(accumulate(len(plan.rows) for plan in plans))
    first_rows = [0, *ends[:-1]]
    for growth, result in zip(growths, _next(plans, logits, vocabulary, top_m), strict=True):
        growth.extend(result)
    return first_rows


def _next(plans: Sequence[DraftPlan], logits: Tensor, vocabulary: DraftVocabulary, top_m: int) -> list[Drafted]:
    scores, token_ids = vocabulary.ranked(logits, [row.sampling for plan in plans for row in plan.rows])
    return draft_next(scores, plans, top_m, token_ids)


class HeadGrowth:
    """A head and how it drafts. The head's pool is the caller's to divide up."""

    def __init__(self, head: FeatureHead, vocab_size: int, *, top_m: int) -> None:
        self._head = head
        self._vocab_size = vocab_size
        self._top_m = top_m
        self._token_ids = torch.empty(0)
        self._known_vocabulary: DraftVocabulary
        self.num_rounds = 0
        """Forwards so far."""

    @property
    def _vocabulary(self) -> DraftVocabulary:
        """The head's: another version may have another one."""
        if self._token_ids is not self._head.draft_token_ids:
            self._token_ids = self._head.draft_token_ids
            self._known_vocabulary = DraftVocabulary(self._token_ids, self._vocab_size, top_m=self._top_m)
        return self._known_vocabulary

    def forward(self, parts: Sequence[DraftRows], states: Tensor, logit_rows: Sequence[int]) -> HeadOutput:
        """Run the rows of all sequences, which the logit rows count through.

        states: [T, 3H] features or [T, H] hidden states, of the tokens before.
        """
        self.num_rounds += 1
        return self._head.forward(HeadStep(*lay_out(parts), logit_rows, states))

    def grow(self, wishes: Sequence[DraftWish], output: HeadOutput) -> list[Drafts]:
        """A draft for each wish, after the forward whose i-th logit row was its last token."""

        def expand(expansions: Sequence[DraftRows]) -> Tensor:
            nonlocal output
            parents = [row for expansion in expansions for row in expansion.logit_rows]
            hidden = output.hidden.index_select(0, to_device(parents, torch.int64, output.hidden.device))
            output = self.forward(expansions, hidden, range(len(parents)))
            for rows, end in zip(expansions, accumulate(len(rows.token_ids) for rows in expansions), strict=True):
                if rows.states is not None:
                    rows.states.append(output.hidden[end - 1 : end].clone())
            return output.logits

        if (most := self._head.max_draft_tokens) is not None:
            wishes = [replace(wish, num_draft_tokens=min(wish.num_draft_tokens, most)) for wish in wishes]
        return grow_drafts(wishes, output.logits, expand, self._vocabulary, top_m=self._top_m)

    def next(self, plans: Sequence[DraftPlan], logits: Tensor) -> list[Drafted]:
        """What follows for each plan by the logits [R, V_d] of its rows."""
        return _next(plans, logits, self._vocabulary, self._top_m)
