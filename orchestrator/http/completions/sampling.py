"""What requests for completions and for chat completions have in common, and what it means."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec

from orchestrator.http.completions.request_fields import RequestFields
from orchestrator.http.completions.response_format import ResponseFormat, StructuredOutputs
from orchestrator.requests.options import RequestDefaults, options_of
from orchestrator.requests.request import STEP_FIELDS, GenerationOptions, check_number
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import MAX_LOGPROBS, MAX_SEED, MAX_TOP_K, AcceptanceMode, Grammar

MAX_LOGIT_BIAS = 100.0
_LIKELIEST_ONLY = 1e-9
"""A top_p below the probability of the likeliest token of any vocabulary: it alone is kept."""
_ACCEPTANCE_FIELDS = ("acceptance", "typical_epsilon", "typical_delta", "tolerance_top_k", "tolerance_delta")
SPECULATION_NAMES = {
    name: f"speculation.{name}" for name in ("proposer", "num_speculative_tokens", *_ACCEPTANCE_FIELDS, *STEP_FIELDS)
}
"""Names of parameters that the service knows without their object."""


class StreamOptions(RequestFields, kw_only=True):
    """How to stream."""

    include_usage: bool = False
    """A last event has the usage of the whole request."""
    continuous_usage_stats: bool = False
    """Every event has the usage of its answer so far."""


class SpeculationFields(RequestFields, kw_only=True):
    """How the request speculates: Pilotfish's own addition."""

    mode: Literal["auto", "off", "on"] | None = None
    """`auto`: the controller decides, round by round."""
    num_speculative_tokens: int | None = None
    """Draft tokens a round."""
    proposer: str | None = None
    acceptance: Literal["coupled", "rejection", "typical", "tolerance"] = "coupled"
    """The last two are lossy; see docs/lossy.md."""
    typical_epsilon: float | None = None
    typical_delta: float | None = None
    tolerance_top_k: int | None = None
    tolerance_delta: float | None = None
    level: Literal["token", "step"] | None = None
    """`step`: speculation over whole steps of reasoning, as are the next four; lossy likewise."""
    step_judge: Literal["score", "logprob"] | None = None
    step_threshold: float | None = None
    step_max_tokens: int | None = None
    step_tokens: int | None = None
    learn: bool | None = None
    """False: nothing of the request is kept to train the drafter."""
    return_tokens: bool = False
    """Return token ids and where each token came from."""


class GenerationFields(RequestFields, kw_only=True):
    """Fields of both APIs; those that OpenAI does not have are spelled as vLLM does."""

    model: str | None = None
    """The served model if left out."""
    n: int | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    """0: the likeliest token only."""
    top_k: int | None = None
    """0 or -1: all."""
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    """The seed of the first answer to each prompt; the next ones take the seeds after it."""
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    """The only tokens that the answer may consist of."""
    ignore_eos: bool | None = False
    min_tokens: int | None = None
    """Output tokens before the answer may end of itself, or at a stop."""
    bad_words: list[str] | None = None
    """What the answer does not say."""
    include_stop_str_in_output: bool | None = False
    skip_special_tokens: bool | None = True
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    """The first of vLLM's older names of structured_outputs' fields."""
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    truncate_prompt_tokens: int | None = None
    """The last so many tokens of the prompt are kept; -1: as many as there is room for."""
    return_token_ids: bool | None = False
    prompt_logprobs: int | None = None
    """How many of the likeliest tokens are returned at each place of the prompt, with the one that is there."""
    cache_salt: str | None = None
    """Cached prefixes, and outputs for lookups, are shared with requests of the same salt only."""
    speculation: SpeculationFields | None = None

    @property
    def num_drawn(self) -> int | None:
        """Answers to each prompt that are made."""
        return self.n

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The number as GenerationOptions has it."""
        return self.prompt_logprobs

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def extras(self) -> dict[str, Any]:
        """What answers hold besides their text."""
        return {
            "returns_tokens": self.speculation is not None and self.speculation.return_tokens,
            "returns_token_ids": bool(self.return_token_ids),
            "includes_usage": self.includes_usage,
            "has_running_usage": self.has_running_usage,
            "num_prompt_logprobs": self.prompt_logprobs,
        }

    @property
    def has_running_usage(self) -> bool:
        """Whether every event of a stream has its usage."""
        return self.includes_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def outputs(self) -> StructuredOutputs | None:
        """What the answer must be, under either name."""
        guided = {name: getattr(self, f"guided_{name}") for name in ("json", "regex", "choice", "grammar")}
        guided = {name: value for name, value in guided.items() if value is not None}
        if guided and self.structured_outputs is not None:
            raise InvalidRequestError("set structured_outputs or guided fields, not both", param="structured_outputs")
        return StructuredOutputs(**guided) if guided else self.structured_outputs

    @property
    def given_format(self) -> dict[str, Any] | None:
        """The response_format as the request has it."""
        return None if self.response_format is None else self.response_format.as_given()


def generation_options(
    fields: GenerationFields,
    *,
    max_tokens: int,
    num_logprobs: int | None,
    grammar: Grammar | None,
    defaults: RequestDefaults,
    tokenizer: Tokenizer,
) -> GenerationOptions:
    """The options of the first answer. Raises InvalidRequestError, with the parameter, for values out of range."""
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequestError("stream_options needs stream to be true", param="stream_options")
    if fields.prompt_logprobs is not None:
        check_number("prompt_logprobs", fields.prompt_logprobs, 0, MAX_LOGPROBS)
        if fields.stream:
            raise InvalidRequestError("prompt_logprobs is not served in streams", param="prompt_logprobs")
    speculation = fields.speculation or SpeculationFields()
    given = {**_given(fields), **_given(speculation)}
    given |= {
        "max_tokens": max_tokens,
        "logit_bias": _logit_bias(fields.logit_bias),
        "acceptance": AcceptanceMode[speculation.acceptance.upper()],
        "stop_token_ids": _token_ids("stop_token_ids", fields.stop_token_ids),
        "allowed_token_ids": _allowed_token_ids(fields.allowed_token_ids),
        "num_logprobs": num_logprobs,
        "grammar": grammar,
        "stop": (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ()),
        "include_stop": bool(fields.include_stop_str_in_output),
        "num_prompt_logprobs": fields.num_prompt_logprobs,
    }
    if fields.top_k is not None:
        given["top_k"] = 0 if fields.top_k == -1 else min(fields.top_k, MAX_TOP_K)  # more than any vocabulary: all
    if fields.top_p == 0:  # which OpenAI's clients may send
        given["top_p"] = _LIKELIEST_ONLY
    if fields.seed is not None and not -(2**63) <= fields.seed <= MAX_SEED:
        raise InvalidRequestError(f"seed is {fields.seed}; it must be between -2^63 and 2^64 - 1", param="seed")
    if (num_tokens := speculation.num_speculative_tokens) is not None:
        check_number("speculation.num_speculative_tokens", num_tokens, 0)
    return options_of(given, defaults, tokenizer)


def _given(fields: RequestFields) -> dict[str, Any]:
    """What is set, by its name."""
    return {name: value for name in fields.__struct_fields__ if (value := getattr(fields, name)) is not None}


def sample_options(options: GenerationOptions, index: int) -> GenerationOptions:
    """The options of the answer that takes the seed with this index: only the seed differs."""
    if index == 0:
        return options
    seed = (options.sampling.seed + index) % (MAX_SEED + 1)
    return dataclasses.replace(options, sampling=msgspec.structs.replace(options.sampling, seed=seed))


def check_num_choices(num_choices: int | None, num_prompts: int, max_choices: int) -> int:
    """Answers per prompt. Raises InvalidRequestError."""
    num_choices = 1 if num_choices is None else num_choices
    check_number("n", num_choices, 1)
    if num_choices * num_prompts > max_choices:
        raise InvalidRequestError(
            f"the request asks for {num_choices * num_prompts} answers; at most {max_choices} are allowed "
            "(orchestrator.http.max_choices)",
            param="n" if num_choices > 1 else "prompt",
        )
    return num_choices


def _logit_bias(logit_bias: dict[int, float] | None) -> tuple[tuple[int, float], ...]:
    _token_ids("logit_bias", list(logit_bias or ()))
    for token_id, bias in (logit_bias or {}).items():
        if not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:
            raise InvalidRequestError(
                f"logit_bias of token {token_id} is {bias}; it must be between -100 and 100", param="logit_bias"
            )
    return tuple((logit_bias or {}).items())


def _token_ids(name: str, token_ids: list[int] | None) -> tuple[int, ...]:
    if token_ids and min(token_ids) < 0:
        raise InvalidRequestError(f"{name} holds a negative token id", param=name)
    return tuple(token_ids or ())


def _allowed_token_ids(token_ids: list[int] | None) -> tuple[int, ...]:
    if token_ids == []:
        raise InvalidRequestError("allowed_token_ids is empty; leave it out to allow all", param="allowed_token_ids")
    return _token_ids("allowed_token_ids", token_ids)
