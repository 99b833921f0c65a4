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


def method_for(
    vocabulary: str, vocabularies: Vocabularies, token_ids: Sequence[int], drafter_token_ids: Sequence[int]
) -> Method:
    """What draft.vocabulary says for a text, of which either has its own tokens.

    Each must have most of the other's: a drafter of words that is held to a target's bytes knows nothing any more.
    """
    if vocabulary != "auto":
        return Method(vocabulary)
    own = vocabularies.share(token_ids[-_RECENT_TOKENS:])
    theirs = vocabularies.share_of_drafter(drafter_token_ids[-_RECENT_TOKENS:])
    return Method.INTERSECTION if min(own, theirs) >= _COVERED else Method.TEXT


def text_sampling(sampling: SamplingParams, vocabularies: Vocabularies) -> SamplingParams:
    """How the drafter writes text: its likeliest one, as noise cannot be shared among tokens that are others.

    What names the target's tokens is left out, here as below: it is the target that keeps to it.
    """
    return msgspec.structs.replace(
        shared_sampling(sampling),
        temperature=0.0,
        acceptance=AcceptanceMode.COUPLED,
        max_tokens=_UNLIMITED,
        stop_token_ids=vocabularies.end_ids,
    )


def shared_sampling(sampling: SamplingParams) -> SamplingParams:
    """How a drafter chooses among the tokens that both have: as the target does."""
    return msgspec.structs.replace(
        sampling,
        repetition_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        logit_bias=(),
        stop_token_ids=(),
        grammar=None,
        num_logprobs=None,
        min_tokens=0,
        bad_words=(),
        allowed_token_ids=(),
    )
