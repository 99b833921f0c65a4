"""The next draft tokens of sequences with a proposal to make, and the proposals that they complete."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pilotfish.engine.sequence import EngineSequence, ProposeTask
from pilotfish.engine.tree_proposal import TreeProposal
from pilotfish.messages import Proposal
from pilotfish.speculation.branching import branch
from pilotfish.speculation.drafting import Draft, DraftRow, draft
from pilotfish.speculation.penalties import Row
from pilotfish.speculation.tree_growth import Candidate, GrownTree
from pilotfish.types import AcceptanceMode, SparseDistribution, Timings

Drafted = Draft | list[list[Candidate]]
"""The next token of a chain, or the candidates of each node that a tree expands."""


def draft_next(logits: Tensor, sequences: Sequence[EngineSequence], top_m: int) -> list[Drafted]:
    """What follows for each sequence, each with a ProposeTask; changes none.

    logits: [R, V], their rows one after the other: one for a chain, one per expanded node for a tree.
    """
    chain_rows: list[int] = []
    chains: list[DraftRow] = []
    node_rows: list[int] = []
    nodes: list[Row] = []
    first_row = 0
    for sequence in sequences:
        growth = _growth_of(sequence)
        if growth is None:
            chain_rows.append(first_row)
            chains.append(DraftRow(sequence.sampling, len(sequence.tokens), sequence.history))
            first_row += 1
        else:
            nodes.extend(_node_rows(sequence, growth))
            node_rows.extend(range(first_row, first_row + growth.num_logit_rows))
            first_row += growth.num_logit_rows
    drafts = iter(draft(logits if not nodes else logits[chain_rows], chains, top_m))
    width = max((growth.branching for growth in map(_growth_of, sequences) if growth), default=1)
    candidates = iter(branch(logits if not chains else logits[node_rows], nodes, width))
    drafted: list[Drafted] = []
    for sequence in sequences:
        growth = _growth_of(sequence)
        if growth is None:
            drafted.append(next(drafts))
        else:
            drafted.append([next(candidates)[: growth.branching] for _ in range(growth.num_logit_rows)])
    return drafted


def add_drafted(sequence: EngineSequence, drafted: Drafted) -> Proposal | None:
    """Add what was drafted; the proposal once it is complete."""
    task = sequence.task
    assert isinstance(task, ProposeTask)
    if isinstance(drafted, Draft):
        return _add_token(sequence, task, drafted)
    assert task.growth is not None
    grown = task.growth.extend(drafted)
    return None if grown is None else _tree_proposal(sequence, task, grown)


def _growth_of(sequence: EngineSequence) -> TreeProposal | None:
    assert isinstance(sequence.task, ProposeTask)
    return sequence.task.growth


def _node_rows(sequence: EngineSequence, growth: TreeProposal) -> list[Row]:
    return [Row(sequence.sampling, len(sequence.tokens) + len(path), sequence.history, path) for path in growth.paths()]


def _add_token(sequence: EngineSequence, task: ProposeTask, drafted: Draft) -> Proposal | None:
    sequence.append((drafted.token_id,), committed=False)
    task.draft_token_ids.append(drafted.token_id)
    if drafted.probs is not None:
        task.draft_probs.append(drafted.probs)
    if len(task.draft_token_ids) < task.num_draft_tokens:
        return None
    sequence.task = None
    return Proposal(
        sequence_id=sequence.sequence_id,
        base_length=task.base_length,
        draft_token_ids=tuple(task.draft_token_ids),
        draft_probs=tuple(task.draft_probs),
        timings=_timings(sequence, task),
    )


def _tree_proposal(sequence: EngineSequence, task: ProposeTask, grown: GrownTree) -> Proposal:
    sequence.task = None
    sampling = sequence.sampling
    needs_probs = sampling.acceptance is AcceptanceMode.REJECTION and not sampling.is_greedy
    return Proposal(
        sequence_id=sequence.sequence_id,
        base_length=task.base_length,
        draft_token_ids=grown.token_ids,
        # Chosen, not drawn: all the probability is on the token itself (see speculation/branching.py).
        draft_probs=tuple(SparseDistribution((t,), (1.0,)) for t in grown.token_ids) if needs_probs else (),
        timings=_timings(sequence, task),
        parents=() if grown.tree.is_chain else grown.tree.parents,
    )


def _timings(sequence: EngineSequence, task: ProposeTask) -> Timings:
    return Timings(task.start_ns - task.arrival_ns, sequence.compute_time_ns)
