"""Makes a request's options from what it sets, the same for both APIs."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.requests.bad_words import bad_word_tokens
from orchestrator.requests.request import AnswerOptions, GenerationOptions, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import MAX_SEED, SamplingParams

_SEED_BITS = 63
"""A drawn seed has so many bits: it fits the API's int64."""
_ANSWER = ["ignore_eos", *(each.name for each in dataclasses.fields(AnswerOptions))]
_SPECULATION = [each.name for each in dataclasses.fields(SpeculationOptions)]


@dataclasses.dataclass(frozen=True)
class RequestDefaults:
    """What requests get that do not say."""

    speculation: SpeculationConfig
    sampling: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The model's own defaults (orchestrator.generation_config), by their names in SamplingParams."""


def options_of(given: Mapping[str, Any], defaults: RequestDefaults, tokenizer: Tokenizer) -> GenerationOptions:
    """given: what the request sets, by the names of SamplingParams, SpeculationOptions and GenerationOptions; bad_words
    are text, and a seed may be negative. Other names are of no interest.

    Raises InvalidRequestError, with the parameter, for values out of range.
    """
    given = {
        **defaults.sampling,
        **given,
        # Negative ones are seeds of their own.
        "seed": given["seed"] % (MAX_SEED + 1) if "seed" in given else secrets.randbits(_SEED_BITS),
        "bad_words": bad_word_tokens(given.get("bad_words", ()), tokenizer),
    }
    speculation = {
        "mode": defaults.speculation.mode,
        "proposer": defaults.speculation.proposer,
        **_named(_SPECULATION, given),
    }
    return GenerationOptions(
        sampling=SamplingParams(**_named(SamplingParams.__struct_fields__, given)),
        speculation=SpeculationOptions(**speculation),
        says_mode="mode" in given,
        **_named(_ANSWER, given),
    )


def _named(names: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}
