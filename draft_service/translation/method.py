"""How a draft of another vocabulary becomes one of the target's."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from draft_service.translation.vocabularies import Vocabularies
from pilotfish.types import AcceptanceMode, SamplingParams

_COVERED = 0.6
"""Share of a text's tokens that both must have, for the drafter to be held to what both have."""
_RECENT_TOKENS = 256
"""Tokens of a text that are looked at."""
_UNLIMITED = 2**31 - 1


class Method(enum.Enum):
    """How tokens are drafted that the target knows (2502.05202)."""

    INTERSECTION = "intersection"
    """The drafter chooses among the tokens that both have, with their probabilities renormalised (TLI)."""
    TEXT = "text"
    """The drafter writes text, which is tokenised as the target would (SLEM)."""


def method_for(vocabulary: str, vocabularies: Vocabularies, token_ids: Sequence[int]) -> Method:
    """What draft.vocabulary says for a text of the target's tokens."""
    if vocabulary != "auto":
        return Method(vocabulary)
    is_covered = vocabularies.share(token_ids[-_RECENT_TOKENS:]) >= _COVERED
    return Method.INTERSECTION if is_covered else Method.TEXT


def drafter_sampling(sampling: SamplingParams, method: Method, vocabularies: Vocabularies) -> SamplingParams:
    """How the drafter chooses its tokens.

    What names the target's tokens is left out: it is the target that keeps to it. Only rejection sampling makes use of
    how likely a draft was; elsewhere the likeliest one is best, as noise cannot be shared among different tokens.
    """
    is_drawn = method is Method.INTERSECTION and sampling.acceptance is AcceptanceMode.REJECTION
    return msgspec.structs.replace(
        sampling,
        temperature=sampling.temperature if is_drawn else 0.0,
        repetition_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        logit_bias=(),
        acceptance=AcceptanceMode.REJECTION if is_drawn else AcceptanceMode.COUPLED,
        max_tokens=_UNLIMITED,
        stop_token_ids=vocabularies.end_ids,
        num_logprobs=None,
        min_tokens=0,
        bad_words=(),
        allowed_token_ids=vocabularies.common_ids if method is Method.INTERSECTION else (),
    )
