"""The advice of an examination as configuration. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import yaml

from pilotfish.examine.prediction import Advice

_MANY = 1 << 16
"""A batch size that no replica reaches."""
_ADVISED = (
    ("target.drafter", ("proposer", "lookup", "model", "exit_layer")),
    (
        "orchestrator.speculation",
        (
            "mode",
            "proposer",
            "lookup",
            "num_speculative_tokens",
            "num_speculative_tokens_per_batch_size",
            "disable_by_batch_size",
            "tree_nodes",
        ),
    ),
)
"""Keys that an advice decides, which of those that are there would contradict it."""


def speculation_settings(advice: Advice) -> dict[str, Any]:
    """Keys of orchestrator.speculation: between two loads that were examined the nearer one counts."""
    if not advice.drafter:
        return {"mode": "off"}
    settings: dict[str, Any] = {"num_speculative_tokens": max(advice.num_draft_tokens.values())}
    loads = sorted(advice.num_draft_tokens)
    ends = [(load + after) // 2 for load, after in pairwise(loads)]
    bounds = zip(loads, [1, *(end + 1 for end in ends)], [*ends, _MANY], strict=True)
    drafted = [[first, last, k] for load, first, last in bounds if (k := advice.num_draft_tokens[load])]
    settings["num_speculative_tokens_per_batch_size"] = drafted
    if advice.takes_chains:
        settings["tree_nodes"] = 0
    if advice.off_from is not None:
        settings["disable_by_batch_size"] = drafted[-1][1] + 1
    return settings


def with_advice(values: dict[str, Any], advice: Advice, drafter_settings: dict[str, Any]) -> str:
    """A configuration file as YAML: values of one that is there, with the advice in them; comments are lost.

    drafter_settings: of the drafter that the advice names.
    """
    for section, names in _ADVISED if advice.drafter else ():
        values = _without(values, section.split("."), names)
    speculation = {"orchestrator": {"speculation": speculation_settings(advice)}}
    return yaml.safe_dump(_merged(_merged(values, drafter_settings), speculation), sort_keys=False)


def _without(values: dict[str, Any], section: Sequence[str], names: Collection[str]) -> dict[str, Any]:
    """The values but for these names of a section."""
    if not section:
        return {name: value for name, value in values.items() if name not in names}
    first, *others = section
    inner = values.get(first)
    return {**values, first: _without(inner, others, names)} if isinstance(inner, dict) else values


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, value in changes.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return merged
