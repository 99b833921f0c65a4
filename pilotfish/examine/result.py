"""What an examination has found, as it is printed and as JSON has it. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.prediction import Advice, Speed
from pilotfish.step_table import StepTable


class Finding(msgspec.Struct, frozen=True):
    """Why fewer drafts are accepted than could be."""

    cause: str
    evidence: str
    """The experiment and its figures."""
    advice: str


class DrafterResult(msgspec.Struct, frozen=True):
    """Of one drafter."""

    name: str
    model: str
    """Its weights; empty: it has none."""
    overall: Acceptance
    greedy: Acceptance
    sampled: Acceptance | None
    """At the temperature; None: no answer was sampled."""
    by_category: Mapping[str, Acceptance]
    speeds: Sequence[Speed]
    steps: StepTable
    """What the target's steps took beside it."""
    findings: Sequence[Finding] = ()


class Examination(msgspec.Struct, frozen=True):
    """Of all drafters that were asked for."""

    target: str
    machine: str
    num_answers: int
    num_tokens: int
    """Of all answers."""
    temperature: float
    """Of the answers that were sampled."""
    took_s: float
    plain_tokens_per_s: Mapping[int, float]
    """By load, without drafts."""
    drafters: Sequence[DrafterResult]
    advice: Advice
