"""From a step's decisions to committed tokens and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import NO_DRAFTS, DecodeTask, EngineSequence, VerifyTask
from pilotfish.messages import Verdict
from pilotfish.speculation.rounds import Outcome, Round
from pilotfish.speculation.stopping import cut
from pilotfish.types import Timings


def verification_round(sequence: EngineSequence) -> Round:
    """What the target decides for this sequence; a decode is a verification of nothing."""
    return Round(
        sampling=sequence.sampling,
        first_position=len(sequence.tokens),
        draft_token_ids=sequence.drafts.token_ids,
        draft_probs=sequence.drafts.probs,
        history=sequence.history,
        tree=sequence.drafts.tree,
        constraint=sequence.grammar,
    )


def commit_outcomes(
    verdicts: Sequence[ScheduledRows], outcomes: Sequence[Outcome], kv_cache: KVCache, max_context_tokens: int
) -> tuple[list[Verdict], list[tuple[int, int]]]:
    """Commit each outcome to its sequence. Returns the verdicts, and the (from, to) slots whose keys and values the
    caller has to move before anybody may find the blocks: those of trees' accepted paths."""
    committed: list[Verdict] = []
    moves: list[tuple[int, int]] = []
    for rows, outcome in zip(verdicts, outcomes, strict=True):
        verdict = _commit_outcome(rows.sequence, outcome, max_context_tokens)
        path = outcome.path[: verdict.num_accepted_tokens]
        moves.extend(kv_cache.path_moves(rows.sequence, verdict.base_length, path))
        committed.append(verdict)
    return committed, moves


def _commit_outcome(sequence: EngineSequence, outcome: Outcome, max_context_tokens: int) -> Verdict:
    """Append the decided tokens, cut at a stop; rolls rejected drafts back by lowering a number."""
    task = sequence.task
    assert isinstance(task, VerifyTask | DecodeTask)
    base_length = len(sequence.tokens)
    remaining = min(sequence.sampling.max_tokens - sequence.num_output_tokens, max_context_tokens - base_length)
    token_ids, num_accepted, finish_reason = cut(
        outcome.token_ids,
        outcome.num_accepted,
        stop_token_ids=sequence.sampling.stop_token_ids,
        remaining_tokens=remaining,
    )
    sequence.append(token_ids, committed=True)
    sequence.num_computed_tokens = base_length + num_accepted
    timings = Timings(task.start_ns - task.arrival_ns, sequence.compute_time_ns)
    drafts = task.drafts
    if isinstance(task, VerifyTask) or len(sequence.tokens) >= task.goal_length:
        sequence.task = None
    else:
        task.drafts = NO_DRAFTS
    sequence.compute_time_ns = 0
    return Verdict(
        sequence_id=sequence.sequence_id,
        base_length=base_length,
        num_draft_tokens=len(drafts),
        num_accepted_tokens=num_accepted,
        token_ids=tuple(token_ids),
        logprobs=outcome.logprobs[: len(token_ids)],
        finish_reason=finish_reason,
        timings=timings,
        draft_depth=drafts.tree.depth if drafts.tree else 0,
        ended_in_leaf=drafts.tree is not None and not drafts.tree.children[outcome.path[-1] + 1 if outcome.path else 0],
    )
