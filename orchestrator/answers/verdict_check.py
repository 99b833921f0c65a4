"""Whether a verdict is one that a working target would give: a client must never see what comes of another."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from pilotfish.errors import InternalError
from pilotfish.messages import Verdict
from pilotfish.types import Limits, ModelInfo


def check_verdict(verdict: Verdict, sequence: Sequence, model: ModelInfo, limits: Limits) -> None:
    """Raises InternalError for what does not continue the committed tokens, or cannot be of this model and draft.

    model, limits: of the replica that answers.
    """
    token_ids, num_drafts, num_accepted = verdict.token_ids, verdict.num_draft_tokens, verdict.num_accepted_tokens
    if verdict.base_length != sequence.length or not token_ids:
        raise InternalError(f"the target answered on {verdict.base_length} tokens; {sequence.length} are committed")
    if max(token_ids) >= model.vocab_size:
        raise InternalError(f"the target answered with token {max(token_ids)}; its vocabulary has {model.vocab_size}")
    num_remaining = sequence.num_remaining_tokens
    if len(token_ids) > num_remaining or (len(token_ids) == num_remaining and verdict.finish_reason is None):
        raise InternalError("the target went past max_tokens")
    # The tokens of a round are those accepted, and at most one of the target's own.
    is_round = num_accepted <= verdict.depth <= num_drafts <= limits.max_draft_tokens
    if not is_round or (num_drafts and not num_accepted <= len(token_ids) <= num_accepted + 1):
        raise InternalError(
            f"the target says that {num_accepted} of {num_drafts} drafts are accepted, and sends {len(token_ids)} "
            "tokens"
        )
    if verdict.logprobs:
        _check_logprobs(verdict, model)


def _check_logprobs(verdict: Verdict, model: ModelInfo) -> None:
    is_sound = len(verdict.logprobs) == len(verdict.token_ids) and all(
        len(logprobs.top_token_ids) == len(logprobs.top_logprobs)
        and max(logprobs.top_token_ids, default=0) < model.vocab_size
        for logprobs in verdict.logprobs
    )
    if not is_sound:
        raise InternalError("the target's log-probabilities are not those of its tokens")
