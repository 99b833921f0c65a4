"""Whether the tokens that a request names exist, and leave an answer that can begin and end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.requests.model_limits import ServedModel
from pilotfish.errors import InvalidRequestError, PromptTooLongError
from pilotfish.types import SamplingParams


def check_prompt(prompt_token_ids: Sequence[int], model: ServedModel) -> None:
    """Raises InvalidRequestError (PromptTooLongError for a prompt that fills the context)."""
    if not prompt_token_ids:
        raise InvalidRequestError("the prompt is empty; it must have at least one token", param="prompt")
    if len(prompt_token_ids) >= model.max_context_tokens:
        raise PromptTooLongError(
            f"the prompt has {len(prompt_token_ids)} tokens and the context {model.max_context_tokens}; "
            "it must leave room for at least one output token",
            param="prompt",
        )
    check_token_ids("the prompt", prompt_token_ids, model.vocab_size)


def check_token_lists(sampling: SamplingParams, model: ServedModel) -> None:
    """Raises InvalidRequestError. Lists of tokens cost every step of the sequence, and those of others beside it."""
    biased = [token_id for token_id, _ in sampling.logit_bias]
    if len(set(biased)) < len(biased):
        raise InvalidRequestError("logit_bias holds a token twice; add its biases up", param="logit_bias")
    for name, token_ids in (
        ("logit_bias", biased),
        ("stop_token_ids", sampling.stop_token_ids),
        ("allowed_token_ids", sampling.allowed_token_ids),
    ):
        if len(token_ids) > model.max_listed_tokens:
            raise InvalidRequestError(
                f"{name} holds {len(token_ids)} tokens; this service takes at most {model.max_listed_tokens} "
                "(orchestrator.max_listed_tokens)",
                param=name,
            )
        check_token_ids(name, token_ids, model.vocab_size)


def check_allowed_tokens(sampling: SamplingParams, stop_token_ids: frozenset[int]) -> None:
    """Raises InvalidRequestError where nothing is left for the first token."""
    left = set(sampling.allowed_token_ids).difference(word[0] for word in sampling.bad_words if len(word) == 1)
    if sampling.min_tokens:
        left -= stop_token_ids
    if sampling.allowed_token_ids and not left:
        raise InvalidRequestError(
            "allowed_token_ids holds no token that bad_words and min_tokens leave", param="allowed_token_ids"
        )


def check_grammar_ends(sampling: SamplingParams, model: ServedModel) -> None:
    """Raises InvalidRequestError where an answer that follows a grammar could not end."""
    if sampling.grammar is None:
        return
    rule = "an answer that follows a grammar must be able to end"
    if not model.eos_token_ids:
        raise InvalidRequestError(f"the model has no token that ends an answer, and {rule}", param="grammar")
    if sampling.allowed_token_ids and model.eos_token_ids.isdisjoint(sampling.allowed_token_ids):
        end = min(model.eos_token_ids)
        raise InvalidRequestError(f"allowed_token_ids: {rule}; allow token {end}", param="allowed_token_ids")


def check_token_ids(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Raises InvalidRequestError for a token that does not exist. name: the parameter, perhaps with an article."""
    if token_ids and max(token_ids) >= vocab_size:
        raise InvalidRequestError(
            f"{name} holds token id {max(token_ids)}; the vocabulary ends at {vocab_size - 1}",
            param=name.removeprefix("the "),
        )
