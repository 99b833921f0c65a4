"""Configuration of steps of reasoning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, NonNegativeInt

from pilotfish.config.fields import STRICT, require

Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class StepsConfig:
    """How [steps of reasoning](lossy.md) are judged, and where one ends."""

    __pydantic_config__ = STRICT

    question: Text = "\n\nHow correct and useful is the last step, from 0 (wrong) to 9 (right)? \\boxed{"
    """What the judge `score` puts behind a step; the next token is the target's answer."""
    scale: Annotated[tuple[Text, ...], Field(min_length=2)] = tuple("0123456789")
    """The answers it chooses from, worst first, a token each. A step's score is its answer's place, from 0."""
    least_score: NonNegativeInt = 7
    """Steps are kept from this score on, where a request has no `step_threshold`."""
    ends: Annotated[tuple[Text, ...], Field(min_length=1)] = ("\n\n",)
    """A step ends behind the first of these, and behind the mark that ends reasoning."""

    def __post_init__(self) -> None:
        name = "speculation.steps"
        require(len(set(self.scale)) == len(self.scale), f"{name}.scale holds an answer twice")
        require(
            self.least_score < len(self.scale),
            f"{name}.least_score must be below {len(self.scale)}, the number of answers in scale",
        )
