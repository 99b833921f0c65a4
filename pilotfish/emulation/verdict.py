"""What an emulated target decides: its own next tokens, as far as the drafts foresaw them and one further."""

from __future__ import annotations

from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.engine.core.drafts import NO_DRAFTS
from pilotfish.engine.core.sequence import DecodeTask, EngineSequence, VerifyTask
from pilotfish.messages import Verdict
from pilotfish.types import FinishReason, Timings


def emulated_verdict(sequence: EngineSequence, language_model: HashLanguageModel, max_context_tokens: int) -> Verdict:
    """Commit the tokens of the sequence's verification, or of one step of its run."""
    task = sequence.task
    assert isinstance(task, VerifyTask | DecodeTask)
    drafts, tree = task.drafts, task.drafts.shape
    tokens, base_length = sequence.tokens, len(sequence.tokens)
    num_accepted, children = 0, tree.children[0]
    finish_reason: FinishReason | None = None
    while finish_reason is None:
        token_id = language_model.next_token(tokens, sequence.sampling)
        tokens.append(token_id)
        finish_reason = _finish_reason(sequence, max_context_tokens)
        node = next((child for child in children if drafts.token_ids[child] == token_id), None)
        if node is None:
            break
        num_accepted += 1
        children = tree.children[node + 1]
    sequence.num_committed_tokens = len(tokens)
    sequence.num_computed_tokens = base_length + num_accepted
    timings = Timings(task.start_ns - task.arrival_ns, sequence.compute_time_ns)
    sequence.compute_time_ns = 0
    if isinstance(task, VerifyTask) or len(tokens) >= task.goal_length:
        sequence.task = None
    else:
        task.drafts = NO_DRAFTS
    return Verdict(
        sequence_id=sequence.sequence_id,
        base_length=base_length,
        num_draft_tokens=len(drafts),
        num_accepted_tokens=num_accepted,
        token_ids=tuple(tokens[base_length:]),
        finish_reason=finish_reason,
        timings=timings,
        draft_depth=0 if drafts.tree is None else tree.depth,
        ended_in_leaf=drafts.tree is not None and not children,
    )


def _finish_reason(sequence: EngineSequence, max_context_tokens: int) -> FinishReason | None:
    sampling = sequence.sampling
    if sequence.num_output_tokens > sampling.min_tokens and sequence.tokens[-1] in sampling.stop_token_ids:
        return FinishReason.STOP
    if sequence.num_output_tokens >= sampling.max_tokens or len(sequence.tokens) >= max_context_tokens:
        return FinishReason.LENGTH
    return None
