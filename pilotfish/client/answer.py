"""What the public API takes and answers, as plain values: field meanings are those of inference.proto."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.chat import ChatMessage
from pilotfish.rpc.answer import Chunk, Summary
from pilotfish.types import AcceptanceMode, Grammar

__all__ = ["Chunk", "GenerateOptions", "Prompt", "ServiceInfo", "Summary", "TokenPrompt"]


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """How to answer; None leaves the server's default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    """Least output tokens: as long as the answer has fewer, nothing ends it."""
    bad_words: tuple[str, ...] = ()
    """Words that the answer does not hold."""
    allowed_token_ids: tuple[int, ...] = ()
    """The only tokens that the answer may consist of; empty: any."""
    ignore_eos: bool = False
    """Go on after the model's end-of-sequence token."""
    logprobs: int | None = None
    """Log-probabilities. 0: the chosen tokens'; n: also the n likeliest tokens'."""
    speculation: str = "auto"
    """Mode: `auto`, `on` or `off`; empty: the server's default."""
    num_speculative_tokens: int | None = None
    proposer: str = ""
    acceptance: AcceptanceMode = AcceptanceMode.COUPLED
    level: str = "token"
    """`step`: a draft model writes whole steps of reasoning; lossy."""
    step_judge: str = "score"
    """Judge of steps: `score` or `logprob`."""
    step_threshold: float | None = None
    """The mark from which on a step stands."""
    learn: bool | None = None
    """False: nothing of the request is kept to train the drafter."""
    cache_salt: str = ""
    """Cached prefixes, and outputs for lookups, are shared with requests of the same salt only."""
    grammar: Grammar | None = None
    """What the whole answer must be; None: anything."""


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt that is tokenised already."""

    token_ids: tuple[int, ...]


Prompt = str | tuple[ChatMessage, ...] | TokenPrompt
"""Raw text, a conversation for the model's chat template, or tokens."""


@dataclass(frozen=True)
class ServiceInfo:
    """What serves at an address."""

    model_id: str
    dtype: str
    deterministic: bool
    max_context_tokens: int
    num_target_replicas: int
    num_draft_replicas: int
    max_draft_tokens: int
    proposers: tuple[str, ...]
    """Names that a request may give."""
    drafter: str
    """The proposer in the target; empty: none."""
    version: str
    emulated: bool
