"""The next draft tokens of sequences with drafts to make, and the proposals that they complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.engine.core.ahead_growth import AheadGrowth
from pilotfish.engine.core.going_ahead import begin_ahead, chain_proposal, prepared_drafts
from pilotfish.engine.core.sequence import AheadTask, EngineSequence, ProposeTask
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.messages import DraftEvent, PreparedDrafts, Proposal
from pilotfish.speculation.drafting import Draft, DraftRow, draft
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.trees.branching import branch
from pilotfish.speculation.trees.fan_out import MAX_RIVALS
from pilotfish.speculation.trees.growth import Candidate, GrownTree
from pilotfish.types import AcceptanceMode, SparseDistribution, Timings

DRAFTING_TASKS = (ProposeTask, AheadTask)


@dataclass(slots=True)
class Drafted:
    """What a step says of one sequence: of each row whose logits it asked for, what it is to be used for."""

    drafts: Sequence[Draft] = ()
    """The next token of its chain, or of each of those that are drafted ahead."""
    candidates: Sequence[list[Candidate]] = ()
    """Of each node that a tree expands, or at each draft's position where something is drafted ahead."""


@dataclass(slots=True)
class _Plan:
    """What to make of a sequence's rows of logits."""

    rows: list[Row]
    draws: bool
    """A token from each."""
    num_candidates: int
    """From each; 0 for none."""


def draft_next(logits: Tensor, sequences: Sequence[EngineSequence], top_m: int) -> list[Drafted]:
    """What follows for each sequence, each with a ProposeTask or an AheadTask; changes none.

    logits: [R, V], their rows one after the other: one for a chain, else one per node whose next tokens are wanted.
    """
    plans = [_plan(sequence) for sequence in sequences]
    drawn: list[int] = []
    branched: list[int] = []
    first_row = 0
    for plan in plans:
        row_ids = range(first_row, first_row + len(plan.rows))
        drawn.extend(row_ids if plan.draws else ())
        branched.extend(row_ids if plan.num_candidates else ())
        first_row += len(plan.rows)
    rows = [row for plan in plans for row in plan.rows]
    drafts = iter(draft(_select(logits, drawn), [_draft_row(rows[index]) for index in drawn], top_m))
    width = max((plan.num_candidates for plan in plans), default=0)
    candidates = iter(branch(_select(logits, branched), [rows[index] for index in branched], width))
    return [
        Drafted(
            [next(drafts) for _ in plan.rows] if plan.draws else (),
            [next(candidates)[: plan.num_candidates] for _ in plan.rows] if plan.num_candidates else (),
        )
        for plan in plans
    ]


def add_drafted(sequence: EngineSequence, drafted: Drafted) -> Sequence[DraftEvent]:
    """Add what was drafted; the proposal, or what was made ahead, once it is complete."""
    task = sequence.task
    if isinstance(task, AheadTask):
        return _go_ahead(sequence, task.growth, drafted)
    assert isinstance(task, ProposeTask)
    if task.growth is None:
        return _add_token(sequence, task, drafted)
    grown = task.growth.extend(drafted.candidates)
    return [] if grown is None else [_tree_proposal(sequence, task, grown)]


def _plan(sequence: EngineSequence) -> _Plan:
    task = sequence.task
    if isinstance(task, AheadTask):
        rows = _node_rows(sequence, task.growth)
        return _Plan(rows, draws=not task.growth.is_choosing, num_candidates=MAX_RIVALS + 1)
    assert isinstance(task, ProposeTask)
    if task.growth is not None:
        return _Plan(_node_rows(sequence, task.growth), draws=False, num_candidates=task.growth.branching)
    row = Row(sequence.sampling, len(sequence.tokens), sequence.history, constraint=sequence.grammar)
    return _Plan([row], draws=True, num_candidates=0 if task.ahead is None else MAX_RIVALS + 1)


def _node_rows(sequence: EngineSequence, growth: TreeProposal | AheadGrowth) -> list[Row]:
    length = len(sequence.tokens)
    return [
        Row(sequence.sampling, length + len(path), sequence.history, path, sequence.grammar) for path in growth.paths()
    ]


def _draft_row(row: Row) -> DraftRow:
    return DraftRow(row.sampling, row.position, row.history, row.draft_token_ids, row.constraint)


def _select(logits: Tensor, rows: list[int]) -> Tensor:
    if len(rows) == logits.shape[0]:
        return logits
    return logits.index_select(0, to_device(rows, torch.int64, logits.device))


def _add_token(sequence: EngineSequence, task: ProposeTask, drafted: Drafted) -> list[Proposal]:
    (chosen,) = drafted.drafts
    sequence.append((chosen.token_id,), committed=False)
    task.drafts.add(chosen.token_id, chosen.probs, drafted.candidates[0] if drafted.candidates else [])
    if len(task.drafts.token_ids) < task.num_draft_tokens:
        return []
    sequence.task = None
    if task.ahead is not None:
        # The drafts stay where they are in the KV cache, as the first nodes of a tree.
        sequence.truncate(task.base_length)
        begin_ahead(sequence, task.drafts, task.ahead)
    if task.is_prepared:
        return []
    return [chain_proposal(sequence, task.base_length, task.drafts, _timings(sequence, task))]


def _go_ahead(sequence: EngineSequence, growth: AheadGrowth, drafted: Drafted) -> list[PreparedDrafts]:
    if growth.is_choosing:
        growth.choose(drafted.candidates[0])
        return []
    if not growth.extend(drafted.drafts, drafted.candidates):
        return []
    return [prepared_drafts(sequence, growth)]


def _tree_proposal(sequence: EngineSequence, task: ProposeTask, grown: GrownTree) -> Proposal:
    sequence.task = None
    sampling = sequence.sampling
    needs_probs = sampling.acceptance is AcceptanceMode.REJECTION and not sampling.is_greedy
    return Proposal(
        sequence_id=sequence.sequence_id,
        base_length=task.base_length,
        draft_token_ids=grown.token_ids,
        # Chosen, not drawn: all the probability is on the token itself (see speculation/trees/branching.py).
        draft_probs=tuple(SparseDistribution((t,), (1.0,)) for t in grown.token_ids) if needs_probs else (),
        timings=_timings(sequence, task),
        parents=() if grown.tree.is_chain else grown.tree.parents,
    )


def _timings(sequence: EngineSequence, task: ProposeTask) -> Timings:
    return Timings(task.start_ns - task.arrival_ns, sequence.compute_time_ns)
