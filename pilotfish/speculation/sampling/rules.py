"""Which rule decides a sequence's tokens, and rows grouped by it so that they are decided together."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from pilotfish.speculation.sampling.penalties import needs_adjustment
from pilotfish.types import AcceptanceMode, SamplingParams


class Rule(enum.Enum):
    GREEDY = enum.auto()
    COUPLED = enum.auto()
    REJECTION = enum.auto()


class GroupKey(NamedTuple):
    """Rows with equal keys are processed together."""

    rule: Rule
    is_adjusted: bool
    """Penalties and bias copy their rows; the others are spared that."""
    is_lossy: bool


def rule_of(sampling: SamplingParams) -> Rule:
    """Temperature 0 is greedy whatever the acceptance mode. Where that is lossy, drafts are made as for `coupled`."""
    if sampling.is_greedy:
        return Rule.GREEDY
    return Rule.REJECTION if sampling.acceptance is AcceptanceMode.REJECTION else Rule.COUPLED


def group(samplings: Iterable[SamplingParams]) -> dict[GroupKey, list[int]]:
    """Indices by key, ascending."""
    groups: dict[GroupKey, list[int]] = {}
    for index, sampling in enumerate(samplings):
        key = GroupKey(rule_of(sampling), needs_adjustment(sampling), sampling.acceptance.is_lossy)
        groups.setdefault(key, []).append(index)
    return groups
