"""What a peer may ask of a replica: checked where the frames come in, before the engine sees them.

Whether a command fits the state of its sequence is the engine's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import (
    MAX_AHEAD_TOKENS,
    MAX_DRAFT_CANDIDATES,
    CloseSequence,
    Command,
    Decode,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Propose,
    Verify,
)
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import Limits, ModelInfo, SparseDistribution, TreeRequest


def check_command(command: Command, model: ModelInfo, limits: Limits) -> None:
    """Raises InvalidRequestError, saying what is wrong, for what no engine with this model and limits can serve."""
    match command:
        case Verify():
            _check_verify(command, model, limits)
        case Propose():
            _check_num_draft_tokens(command.num_draft_tokens, limits)
            _check_tree_request(command.tree, limits)
            _check_ahead_request(command.ahead)
            _check_token_ids(command.new_token_ids, model.vocab_size, "token id")
            if command.base_length >= model.max_context_tokens:
                raise InvalidRequestError(f"the draft model's context of {model.max_context_tokens} tokens is full")
            if len(command.new_token_ids) > command.base_length:
                raise InvalidRequestError(
                    f"{len(command.new_token_ids)} new tokens cannot end at length {command.base_length}"
                )
        case Decode():
            if command.num_tokens < 1:
                raise InvalidRequestError("num_tokens is 0; it must be at least 1")
            if command.num_draft_tokens:
                _check_num_draft_tokens(command.num_draft_tokens, limits)
            _check_tree_request(command.tree, limits)
        case Predrafted():
            check_prepared(command, model, limits)
        case OpenSequence():
            _check_open(command, model)
        case CloseSequence():
            pass
        case _:
            assert_never(command)


def _check_open(command: OpenSequence, model: ModelInfo) -> None:
    if not command.prompt_token_ids:
        raise InvalidRequestError("the prompt is empty; it needs at least one token")
    num_tokens = len(command.prompt_token_ids) + len(command.output_token_ids)
    if num_tokens >= model.max_context_tokens:
        raise InvalidRequestError(
            f"prompt and output have {num_tokens} tokens; the context of {model.model_id} holds "
            f"{model.max_context_tokens}, the next token included"
        )
    num_output, max_tokens = len(command.output_token_ids), command.sampling.max_tokens
    if num_output >= max_tokens:
        raise InvalidRequestError(f"the output has {num_output} tokens already, of max_tokens {max_tokens}")
    _check_token_ids(command.prompt_token_ids, model.vocab_size, "prompt token id")
    _check_token_ids(command.output_token_ids, model.vocab_size, "output token id")
    _check_token_ids([token_id for token_id, _ in command.sampling.logit_bias], model.vocab_size, "logit_bias token id")
    _check_token_ids(command.sampling.allowed_token_ids, model.vocab_size, "allowed token id")


def _check_verify(command: Verify, model: ModelInfo, limits: Limits) -> None:
    num_drafts = len(command.draft_token_ids)
    if num_drafts > limits.max_draft_tokens:
        raise InvalidRequestError(f"{num_drafts} draft tokens; at most {limits.max_draft_tokens} (max_draft_tokens)")
    check_drafts(command.draft_token_ids, command.draft_probs, model.vocab_size)
    draft_depth(command.parents, num_drafts)


def check_prepared(command: Predrafted, model: ModelInfo, limits: Limits) -> None:
    """Raises InvalidRequestError for what no target with this model and limits can go on with."""
    num_outcomes = len(command.own_token_ids)
    num_each = len(command.draft_token_ids) // num_outcomes
    if num_each > limits.max_draft_tokens or num_outcomes > MAX_AHEAD_TOKENS:
        raise InvalidRequestError(
            f"{num_outcomes} drafts of {num_each} tokens were prepared; at most {MAX_AHEAD_TOKENS} of "
            f"{limits.max_draft_tokens} (max_draft_tokens)"
        )
    check_drafts(command.draft_token_ids, command.draft_probs, model.vocab_size)


def draft_depth(parents: Sequence[int], num_drafts: int) -> int:
    """Tokens on the longest path of a draft. parents: a tree's, as in Verify; empty for a chain.

    Raises InvalidRequestError for what is no tree.
    """
    if not parents:
        return num_drafts
    if len(parents) != num_drafts:
        raise InvalidRequestError(f"{num_drafts} draft tokens with {len(parents)} parents")
    try:
        return DraftTree(tuple(parents)).depth
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None


def check_drafts(token_ids: Sequence[int], probs: Sequence[SparseDistribution], vocab_size: int) -> None:
    """Raises InvalidRequestError for draft tokens that no target can verify. probs: one for each token, or none."""
    _check_token_ids(token_ids, vocab_size, "draft token id")
    if probs and len(probs) != len(token_ids):
        raise InvalidRequestError(f"{len(token_ids)} draft tokens with {len(probs)} distributions")
    for distribution in probs:
        if len(distribution.token_ids) > MAX_DRAFT_CANDIDATES:
            raise InvalidRequestError(f"a draft distribution has more than {MAX_DRAFT_CANDIDATES} tokens")
        _check_token_ids(distribution.token_ids, vocab_size, "token id of a draft distribution")
        if not distribution.is_sound:
            raise InvalidRequestError("a draft distribution repeats a token or its probabilities do not sum to 1")


def _check_num_draft_tokens(num_draft_tokens: int, limits: Limits) -> None:
    if not 1 <= num_draft_tokens <= limits.max_draft_tokens:
        raise InvalidRequestError(
            f"{num_draft_tokens} draft tokens wanted; 1 to {limits.max_draft_tokens} are possible (max_draft_tokens)"
        )


def _check_tree_request(request: TreeRequest | None, limits: Limits) -> None:
    if request is None:
        return
    if not 1 <= request.max_nodes <= limits.max_draft_tokens:
        raise InvalidRequestError(
            f"a tree of {request.max_nodes} draft tokens wanted; 1 to {limits.max_draft_tokens} are possible "
            "(max_draft_tokens)"
        )
    if request.branching < 1:
        raise InvalidRequestError("a tree's branching is 0; it must be at least 1")
    if not 0 <= request.row_price <= 1:
        raise InvalidRequestError(f"a tree's row_price is {request.row_price}; it must be from 0 to 1")


def _check_ahead_request(request: PredraftRequest | None) -> None:
    if request is None:
        return
    if not 1 <= request.max_tokens <= MAX_AHEAD_TOKENS:
        raise InvalidRequestError(f"{request.max_tokens} tokens ahead wanted; 1 to {MAX_AHEAD_TOKENS} are possible")
    if not request.acceptance or not all(0 <= probability <= 1 for probability in request.acceptance):
        raise InvalidRequestError("drafting ahead needs the acceptance of each position, between 0 and 1")


def _check_token_ids(token_ids: Sequence[int], vocab_size: int, what: str) -> None:
    # Protobuf holds them unsigned, so the largest decides.
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise InvalidRequestError(f"{what} {largest} is not in the vocabulary of {vocab_size}")
