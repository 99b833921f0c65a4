"""What an examination has found, as it is printed and as JSON has it. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.prediction import Advice, Speed, advise
from pilotfish.examine.service.answers import AskedService, ServiceMeasured
from pilotfish.step_table import StepTable


class Finding(msgspec.Struct, frozen=True):
    """Why fewer drafts are accepted than could be."""

    cause: str
    evidence: str
    """The experiment and its figures."""
    advice: str


class DrafterResult(msgspec.Struct, frozen=True):
    """What was found of one drafter."""

    name: str
    model: str
    """Its weights; empty: it has none."""
    overall: Acceptance
    greedy: Acceptance | None
    """None: nobody knows how the answers were sampled."""
    sampled: Acceptance | None
    """Acceptance of sampled answers; None: no answer was sampled, or nobody knows."""
    by_category: Mapping[str, Acceptance]
    speeds: Sequence[Speed]
    steps: StepTable
    """What the target's steps took beside it."""
    findings: Sequence[Finding] = ()
    passes: StepTable = StepTable()
    """What the drafter's passes took, by sequences."""
    shares_processors: bool = False
    """Whether it is foretold in a draft service on the target's processors: times of both are added."""


class Examination(msgspec.Struct, frozen=True):
    """What was found of all drafters that were asked for."""

    target: str
    machine: str
    num_answers: int
    num_tokens: int
    """Tokens of all answers."""
    temperature: float
    """Temperature of the answers that were sampled."""
    took_s: float
    plain_tokens_per_s: Mapping[int, float]
    """Tokens a second without drafts, by load."""
    drafters: Sequence[DrafterResult]
    advice: Advice
    is_recent: bool = False
    """Whether answers are those that services gave; else the target was asked."""
    service: ServiceMeasured | None = None
    """What the running service measured that gave the answers; None: none was asked."""


def without_target(service: AskedService, temperature: float, took_s: float) -> Examination:
    """What can be said where the target's weights are not here: what the service measured."""
    return Examination(
        target=service.model,
        machine=f"at {service.measured.address}",
        num_answers=len(service.answers),
        num_tokens=sum(len(answer.token_ids) for answer in service.answers),
        temperature=temperature,
        took_s=took_s,
        plain_tokens_per_s={},
        drafters=[],
        advice=advise({}),
        service=msgspec.structs.replace(service.measured, target_missing=True),
    )
