"""The next draft tokens of sequences with drafts to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pilotfish.engine.core.drafted import Drafted
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask, ProposeTask
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.shared_vocabulary import SharedVocabulary
from pilotfish.speculation.trees.branching import branch
from pilotfish.speculation.trees.fan_out import MAX_RIVALS


@dataclass(slots=True)
class DraftPlan:
    """What to make of a sequence's rows of logits."""

    rows: list[Row]
    draws: bool
    """Whether a token is drawn from each row."""
    num_candidates: int = 0
    """Candidates wanted of each row."""
    vocabulary: int = 0
    """What is drafted among; see UseVocabulary."""


def draft_next(
    logits: Tensor, plans: Sequence[DraftPlan], top_m: int, token_ids: Tensor | None = None
) -> list[Drafted]:
    """What follows for each plan. logits: [R, V], their rows one after the other. token_ids: as in draft."""
    drawn: list[int] = []
    branched: list[int] = []
    first_row = 0
    for plan in plans:
        row_ids = range(first_row, first_row + len(plan.rows))
        drawn.extend(row_ids if plan.draws else ())
        branched.extend(row_ids if plan.num_candidates else ())
        first_row += len(plan.rows)
    rows = [row for plan in plans for row in plan.rows]
    ids_of_drawn, ids_of_branched = (None if token_ids is None else select(token_ids, ids) for ids in (drawn, branched))
    drafts = iter(draft(select(logits, drawn), [rows[index] for index in drawn], top_m, ids_of_drawn))
    width = max((plan.num_candidates for plan in plans), default=0)
    candidates = iter(branch(select(logits, branched), [rows[index] for index in branched], width, ids_of_branched))
    return [
        Drafted(
            [next(drafts) for _ in plan.rows] if plan.draws else (),
            [next(candidates)[: plan.num_candidates] for _ in plan.rows] if plan.num_candidates else (),
        )
        for plan in plans
    ]


def draft_among(
    logits: Tensor, plans: Sequence[DraftPlan], top_m: int, vocabularies: Mapping[int, SharedVocabulary]
) -> list[Drafted]:
    """As draft_next, each plan among the tokens of its vocabulary, if that is one of these."""
    ends = list(accumulate(len(plan.rows) for plan in plans))
    drafted: dict[int, Drafted] = {}
    for name in dict.fromkeys(plan.vocabulary for plan in plans):
        members = [index for index, plan in enumerate(plans) if plan.vocabulary == name]
        chosen = [plans[index] for index in members]
        row_ids = [row for index in members for row in range(ends[index] - len(plans[index].rows), ends[index])]
        own, vocabulary = select(logits, row_ids), vocabularies.get(name)
        if vocabulary is None:
            results = draft_next(own, chosen, top_m)
        else:
            results = [
                _translated(each, vocabulary) for each in draft_next(vocabulary.in_target_ids(own), chosen, top_m)
            ]
        drafted.update(zip(members, results, strict=True))
    return [drafted[index] for index in range(len(plans))]


def _translated(drafted: Drafted, vocabulary: SharedVocabulary) -> Drafted:
    """In the drafter's ids."""
    return Drafted(
        [vocabulary.draft(each) for each in drafted.drafts],
        [vocabulary.candidates(each) for each in drafted.candidates],
    )


def select(logits: Tensor, rows: list[int]) -> Tensor:
    """The given rows, ascending, of a tensor [R, V]."""
    if len(rows) in (0, logits.shape[0]):
        return logits[: len(rows)]  # no copy
    return logits.index_select(0, to_device(rows, torch.int64, logits.device))


def draft_plan(sequence: EngineSequence) -> DraftPlan:
    """The plan for the next step of its ProposeTask or PredraftTask."""
    plan = _own_plan(sequence)
    plan.vocabulary = 0 if sequence.vocabulary is None else sequence.vocabulary.vocabulary
    return plan


def _own_plan(sequence: EngineSequence) -> DraftPlan:
    match sequence.task:
        case PredraftTask(growth=growth):
            num_drawn = 0 if growth.is_choosing else len(growth.branches[0].drafts)
            ends = [(path, len(sequence.tokens) + len(path)) for path in growth.paths()]
            rows = [row_of(sequence, path, end - num_drawn) for path, end in ends]
            return DraftPlan(rows, not growth.is_choosing, MAX_RIVALS + 1)
        case ProposeTask(growth=TreeProposal() as growth):
            return DraftPlan(node_rows(sequence, growth), draws=False, num_candidates=growth.branching)
        case ProposeTask(base_length=start, ahead=ahead):
            num_candidates = 0 if ahead is None else MAX_RIVALS + 1
            return DraftPlan([row_of(sequence, draft_start=start)], draws=True, num_candidates=num_candidates)
        case task:
            raise AssertionError(f"{task} drafts nothing")


def node_rows(sequence: EngineSequence, growth: TreeProposal) -> list[Row]:
    """One for each node whose next tokens are wanted."""
    return [row_of(sequence, path) for path in growth.paths()]


def row_of(sequence: EngineSequence, path: Sequence[int] = (), draft_start: int = 0, *, num_drafts: int = 0) -> Row:
    """The row after the tokens and a path of drafts. num_drafts: drafts that the history holds, not the tokens."""
    position = len(sequence.tokens) + len(path) + num_drafts
    if (among := sequence.vocabulary) is not None:
        # The draft begins where it does in the target's text: the draft model's length may be the same as before.
        start = draft_start + among.position_shift
        return Row(among.sampling, position + among.position_shift, None, path, draft_start=start)
    return Row(sequence.sampling, position, sequence.history, path, sequence.grammar, sequence.token_lists, draft_start)
