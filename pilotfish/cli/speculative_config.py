"""The JSON of vLLM's `--speculative-config` in our configuration's keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NoReturn

import typer

from pilotfish.drafter_registry import IN_TARGET_DRAFTERS, Location, Needs, drafters_of

_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "num_speculative_tokens": "orchestrator.speculation.num_speculative_tokens",
        "num_speculative_tokens_per_batch_size": "orchestrator.speculation.num_speculative_tokens_per_batch_size",
        "disable_by_batch_size": "orchestrator.speculation.disable_by_batch_size",
        "prompt_lookup_min": "draft.prompt_lookup_min",
        "prompt_lookup_max": "draft.prompt_lookup_max",
    }
)
"""Ours, by vLLM's; beside these there are `method` and `model`."""
_LOOKUPS, _HEADS = drafters_of(Needs.TEXT, Location.TARGET), IN_TARGET_DRAFTERS
_METHODS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "draft_model": {"draft.proposer": "model"},
        **{name: {"target.drafter.proposer": name} for name in _HEADS},
        **{name: {"target.drafter.proposer": "none", "target.drafter.lookup": name} for name in _LOOKUPS},
    }
)
_MODEL_KEYS: Mapping[str, str] = MappingProxyType(
    {"draft_model": "draft.model", **dict.fromkeys(_HEADS, "target.drafter.model")}
)
"""Where a method's `model` goes."""


def speculative_settings(text: str) -> dict[str, object]:
    """Values by configuration key. Raises typer.BadParameter, with the methods or keys that there are."""
    try:
        given = json.loads(text)
    except ValueError as error:
        _refuse(f"it is not JSON: {error}")
    if not isinstance(given, dict):
        _refuse("it must be a JSON object")
    # As in vLLM a model alone is a draft model.
    method = given.pop("method", "draft_model" if "model" in given else None)
    if not isinstance(method, str) or method not in _METHODS:
        _refuse(f"there is no method {method!r}", _METHODS)
    model_key = _MODEL_KEYS.get(method)
    keys = _KEYS if model_key is None else {**_KEYS, "model": model_key}
    if unknown := sorted(given.keys() - keys.keys()):
        _refuse(f"method {method} has no key {', '.join(unknown)}", ("method", *keys))
    if method == "draft_model" and "model" not in given:
        _refuse("method draft_model needs a model")
    return {**_METHODS[method], **{keys[name]: value for name, value in given.items()}}


def _refuse(problem: str, known: Iterable[str] = ()) -> NoReturn:
    names = ", ".join(known)
    raise typer.BadParameter(f"{problem}; there are: {names}" if names else problem, param_hint="--speculative-config")
