"""Configuration of emulated hardware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat

from pilotfish.config.fields import STRICT, Share
from pilotfish.config.paths import ProfileOrPath


@dataclass(frozen=True, kw_only=True)
class EmulationConfig:
    """Emulated hardware: engines take a profile's time and answer in meaningless words. All else is real."""

    __pydantic_config__ = STRICT

    profile: ProfileOrPath = ""
    """Hardware profile: `a100-70b`, `h100-70b-tp4`, `cpu`, `instant`, or a file written by `pilotfish profile`. Empty:
    real engines."""
    acceptance: Share | Annotated[tuple[Share, ...], Field(min_length=1)] = 0.8
    """Probability that a draft token is accepted if all before it were; a list has one per position."""
    drafter: str = ""
    """One of the profile's `drafters`, with its own acceptance: in the draft pool or, if `target.drafter.proposer` is
    `eagle3`, in the target. Empty: its draft model, or first head."""
    step_acceptance: Share = 0.8
    """Probability that a [step of reasoning](lossy.md) gets the best score, else it gets the worst."""
    time_scale: PositiveFloat = 1.0
    """Factor on every step's time."""
    seed: NonNegativeInt = 0
    """Decides which tokens and steps are accepted; does not change the target's own text."""
    max_sequences: NonNegativeInt = 0
    """Open sequences per replica; 0: as the profile says."""
    max_batch_tokens: NonNegativeInt = 0
    """Maximum tokens in a step; 0: as the profile says."""
    kv_cache_tokens: NonNegativeInt = 0
    """KV cache of a replica, in tokens; 0: as the profile says."""

    @property
    def is_on(self) -> bool:
        """Whether the engines are emulated."""
        return bool(self.profile)
