"""What a caller asks for, validated: bad input never gets past this module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import msgspec

from orchestrator.requests.kind import Kind
from orchestrator.requests.model_limits import ServedModel
from orchestrator.requests.token_checks import (
    check_allowed_tokens,
    check_grammar_ends,
    check_prompt,
    check_token_lists,
)
from pilotfish.drafter_registry import IN_TARGET_DRAFTERS, LOOKUPS
from pilotfish.errors import InvalidRequestError, RequestTooLargeError
from pilotfish.types import SamplingParams

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 512
"""A stop string is looked for in every piece of text."""
MAX_SALT_CHARS = 512
"""A salt goes to a replica with every answer, and is hashed there: 4 MB of 16 answers held up others for 0.9 s."""
Mode = Literal["auto", "off", "on"]
PROPOSERS = ("auto", "draft", *LOOKUPS, *IN_TARGET_DRAFTERS)
"""Proposers that a request may name. `auto`: ServedModel.default_proposer; `draft`: the draft pool; lookups in the
orchestrator; drafters in the target."""


LEVELS = ("token", "step")
STEP_JUDGES = ("score", "logprob")
STEP_FIELDS = ("level", "step_judge", "step_threshold", "step_max_tokens", "step_tokens")
"""Names of fields of SpeculationOptions, as the APIs call them."""


def check_number(name: str, value: int, least: int, most: int | None = None) -> None:
    """Raises InvalidRequestError for a parameter that is out of its range."""
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InvalidRequestError(f"{name} is {value}; it must be {wanted}", param=name)


@dataclass(frozen=True, kw_only=True)
class SpeculationOptions:
    """How one request speculates."""

    mode: Mode = "auto"
    num_speculative_tokens: int | None = None
    """Draft tokens a round; 0 is the same as mode `off`, None the server's default."""
    proposer: str = "auto"
    level: str = "token"
    """`step`: a draft model writes whole steps of reasoning, which is lossy; the next fields are for it
    (docs/lossy.md)."""
    step_judge: str = "score"
    """What the target judges a step by: `score` or `logprob`."""
    step_threshold: float | None = None
    """A step stands from this mark on; None: the judge's default."""
    step_max_tokens: int = 128
    """The most tokens of one step."""
    step_tokens: int = 1024
    """Output tokens behind which no further step is drafted: the rest of the answer is exact."""
    learn: bool = True
    """False: nothing of the request is kept to train the drafter (docs/learning.md)."""

    def __post_init__(self) -> None:
        for name, known in (("proposer", PROPOSERS), ("level", LEVELS), ("step_judge", STEP_JUDGES)):
            if (value := getattr(self, name)) not in known:
                raise InvalidRequestError(f"{name} {value!r} is unknown; known are {', '.join(known)}", param=name)
        for name in ("step_max_tokens", "step_tokens"):
            check_number(name, getattr(self, name), 1)
        if self.step_threshold is not None and not math.isfinite(self.step_threshold):
            raise InvalidRequestError("step_threshold must be a number", param="step_threshold")


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """What the model has no part in."""

    stop: tuple[str, ...] = ()
    """The answer ends before the first of these that appears."""
    include_stop: bool = False
    """The text ends behind the stop that ended it, not before."""
    skip_special_tokens: bool = True
    """The text is without them."""
    cache_salt: str = ""
    """Cached prefixes, and outputs for lookups, are shared with requests of the same salt only."""
    num_prompt_logprobs: int | None = None
    """Log-probabilities wanted of the prompt's tokens, as SamplingParams.num_logprobs of the output's."""


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(AnswerOptions):
    """Everything about a request but its prompt, before the model is known."""

    sampling: SamplingParams
    """Sampling without the model's end tokens."""
    speculation: SpeculationOptions = SpeculationOptions()
    says_mode: bool = False
    """Whether `speculation.mode` is the request's own word, which operators' rules do not limit where it is `on`."""
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequestError(
                f"{len(self.stop)} stop strings; at most {MAX_STOP_STRINGS} are allowed", param="stop"
            )
        if max(map(len, self.stop), default=0) > MAX_STOP_CHARS:
            raise InvalidRequestError(f"stop holds a string of more than {MAX_STOP_CHARS} characters", param="stop")
        if len(self.cache_salt) > MAX_SALT_CHARS:
            raise InvalidRequestError(
                f"cache_salt has {len(self.cache_salt)} characters; at most {MAX_SALT_CHARS} are allowed",
                param="cache_salt",
            )
        if self.sampling.min_tokens > self.sampling.max_tokens:
            raise InvalidRequestError(
                f"min_tokens is {self.sampling.min_tokens}; the answer may have {self.sampling.max_tokens} tokens",
                param="min_tokens",
            )
        if not all(self.stop):
            raise InvalidRequestError("a stop string is empty; leave it out", param="stop")
        if self.ignore_eos and self.sampling.grammar is not None:
            raise InvalidRequestError(
                "an answer that follows a grammar ends where the grammar does; leave out ignore_eos", param="ignore_eos"
            )
        if self.speculation.level == "step":
            _check_step_sampling(self.sampling)


@dataclass(frozen=True, kw_only=True)
class GenerationRequest(AnswerOptions):
    """A request that can be served as it stands."""

    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    """Sampling with the model's end tokens (unless ignored) and max_tokens cut to the context."""
    speculation: SpeculationOptions
    says_mode: bool = False
    """See GenerationOptions."""
    num_speculative_tokens: int
    """Draft tokens a round; 0 turns speculation off."""
    kind: Kind = Kind.PLAIN
    request_id: str = ""
    traceparent: str = ""
    """W3C header of the trace that the replicas' part of it belongs to; empty: it is not traced."""
    client: str = ""
    """The client's alias for replicas: see OpenSequence."""
    learns: bool = False
    """Whether its text may be kept to train the drafter."""

    @property
    def speculates(self) -> bool:
        """Whether anything may be drafted for it."""
        return self.speculation.mode != "off" and self.num_speculative_tokens > 0


def lossy_by_of(asked: GenerationOptions | GenerationRequest) -> str:
    """What makes the answer lossy, by its name in requests; empty: nothing."""
    if asked.speculation.level == "step":
        return "step"
    acceptance = asked.sampling.acceptance
    return acceptance.name.lower() if acceptance.is_lossy else ""


def _check_step_sampling(sampling: SamplingParams) -> None:
    """What only the target sees to, token by token, cannot be had together with steps that it did not write."""
    for name, is_asked in (
        ("grammar", sampling.grammar is not None),
        ("bad_words", bool(sampling.bad_words)),
        ("allowed_token_ids", bool(sampling.allowed_token_ids)),
        ("acceptance", sampling.acceptance.is_lossy),
    ):
        if is_asked:
            raise InvalidRequestError(f"level step does not go with {name}: leave out one of them", param=name)


def check_request_bytes(num_bytes: int, max_bytes: int) -> None:
    """Refuse a request before anything is spent on it. Raises RequestTooLargeError."""
    if num_bytes > max_bytes:
        raise RequestTooLargeError(f"the request has {num_bytes} bytes; at most {max_bytes} are accepted")


def bind_request(
    options: GenerationOptions,
    prompt_token_ids: Sequence[int],
    model: ServedModel,
    *,
    kind: Kind = Kind.PLAIN,
    request_id: str = "",
    traceparent: str = "",
    client: str = "",
    learns: bool = False,
) -> GenerationRequest:
    """Check a request against the served model and make every value concrete.

    Raises InvalidRequestError (PromptTooLongError for a prompt that fills the context).
    """
    check_prompt(prompt_token_ids, model)
    sampling = options.sampling
    check_token_lists(sampling, model)
    speculation = options.speculation
    if speculation.proposer == "auto":
        speculation = replace(speculation, proposer=model.default_proposer)
    num_draft_tokens = speculation.num_speculative_tokens
    if num_draft_tokens is None:
        num_draft_tokens = model.draft_tokens_by_default(speculation.mode, speculation.proposer)
    if num_draft_tokens > model.max_draft_tokens:
        raise InvalidRequestError(
            f"num_speculative_tokens is {num_draft_tokens}; the target takes at most {model.max_draft_tokens} a round",
            param="num_speculative_tokens",
        )
    num_draft_tokens = min(num_draft_tokens, model.max_draft_depths.get(speculation.proposer, num_draft_tokens))
    eos_token_ids = frozenset() if options.ignore_eos else model.eos_token_ids
    stop_token_ids = eos_token_ids.union(sampling.stop_token_ids)
    check_allowed_tokens(sampling, stop_token_ids)
    check_grammar_ends(sampling, model)
    lossy_by = lossy_by_of(options)
    if lossy_by and not model.allow_lossy:
        param = "level" if lossy_by == "step" else "acceptance"
        raise InvalidRequestError(
            f"{param} {lossy_by} is lossy, which this service does not allow; its operator does with "
            "orchestrator.speculation.allow_lossy",
            param=param,
        )
    max_tokens = min(sampling.max_tokens, model.max_context_tokens - len(prompt_token_ids))
    return GenerationRequest(
        prompt_token_ids=tuple(prompt_token_ids),
        sampling=msgspec.structs.replace(
            sampling,
            max_tokens=max_tokens,
            min_tokens=min(sampling.min_tokens, max_tokens),
            stop_token_ids=tuple(sorted(stop_token_ids)),
        ),
        speculation=speculation,
        says_mode=options.says_mode,
        num_speculative_tokens=num_draft_tokens,
        kind=kind,
        **{each.name: getattr(options, each.name) for each in fields(AnswerOptions)},
        request_id=request_id,
        traceparent=traceparent,
        client=client,
        learns=learns,
    )
