"""Configuration of emulated hardware."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.config.fields import STRICT, require
from pilotfish.config.paths import ProfileOrPath


@dataclass(frozen=True, kw_only=True)
class EmulationConfig:
    """Engines that take the time of other hardware and say words without meaning. Everything around them is real."""

    __pydantic_config__ = STRICT

    profile: ProfileOrPath = ""
    """Name of a hardware profile (`a100-70b`, `h100-70b-tp4`, `cpu`, `instant`) or path of one that
    `pilotfish profile` has written. Empty: the engines are real."""
    acceptance: float | tuple[float, ...] = 0.8
    """Probability that a draft token is the one that the target says, if all before it were; of several, one for each
    place in the draft, the last one for all further places."""
    time_scale: float = 1.0
    """Every step takes so many times as long as the profile says, on the target and on the drafter alike. Above 1 the
    processors of the machine that emulates have as many times more to do what a real deployment's do beside the
    accelerators: measure with 1 and with 5, and what differs is this machine's."""
    seed: int = 0
    """Of which tokens are accepted. The text depends on the prompt and on the request's own seed alone."""
    max_sequences: int = 0
    """Sequences open at once on a replica; 0 takes the profile's. For those who test a full replica."""
    max_batch_tokens: int = 0
    """Token rows of a step at most; 0 takes the profile's."""
    kv_cache_tokens: int = 0
    """Capacity of a replica's KV cache in tokens; 0 takes the profile's."""

    def __post_init__(self) -> None:
        rates = self.acceptance if isinstance(self.acceptance, tuple) else (self.acceptance,)
        require(bool(rates) and all(0 <= rate <= 1 for rate in rates), "emulation.acceptance must be between 0 and 1")
        require(self.time_scale > 0, "emulation.time_scale must be above 0")
        for name in ("seed", "max_sequences", "max_batch_tokens", "kv_cache_tokens"):
            require(getattr(self, name) >= 0, f"emulation.{name} must be at least 0")

    @property
    def is_on(self) -> bool:
        """Whether the engines are emulated."""
        return bool(self.profile)
