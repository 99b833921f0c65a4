"""A drafter that a profile's target can be given: what a pass costs, and how often its tokens are accepted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pilotfish.config.fields import STRICT, require
from pilotfish.emulation.profiles.step_cost import AnyCost


class DrafterForm(StrEnum):
    """Where a drafter can run follows from it."""

    MODEL = "model"
    """A draft model: on replicas of its own."""
    HEAD = "head"
    """A head that reads the target's features: in the target's first rank, or on replicas of its own."""


@dataclass(frozen=True, kw_only=True)
class ProfiledDrafter:
    """One of the drafters that a plan compares, on one GPU wherever it runs."""

    __pydantic_config__ = STRICT

    name: str
    kind: DrafterForm
    cost: AnyCost
    """Costs of a pass, which drafts one token for each sequence."""
    acceptance: tuple[float, ...]
    """Probability that a draft token is accepted, given that those before it were, by position. Beyond its end the
    last value holds."""
    acceptance_source: str
    """Where the acceptance was published, or that it is an assumption."""
    acceptance_ahead: tuple[float, ...] = ()
    """The acceptance of drafts that a head in the pool makes ahead, from its own states; empty: `acceptance`."""
    feature_bytes: int = 0
    """Bytes of a token's features on the wire, for a head: int8 with a scale for each layer, 3 x hidden size + 12."""
    drafts_ahead: bool = False
    """Drafts in the pool while the target verifies; else a head is asked after each verdict (Medusa heads are)."""

    def __post_init__(self) -> None:
        is_right = bool(self.acceptance) and all(0 <= rate <= 1 for rate in (*self.acceptance, *self.acceptance_ahead))
        require(is_right, f"acceptance of {self.name} must hold one probability or more, each between 0 and 1")
        if self.kind is DrafterForm.HEAD:
            require(self.feature_bytes > 0, f"{self.name} is a head: feature_bytes must be above 0")
        else:
            require(
                self.feature_bytes == 0, f"{self.name} is a draft model, which reads no features: feature_bytes is 0"
            )
