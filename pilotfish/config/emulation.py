"""Configuration of emulated hardware."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.config.fields import STRICT, require
from pilotfish.config.paths import ProfileOrPath


@dataclass(frozen=True, kw_only=True)
class EmulationConfig:
    """Emulated hardware: engines take a profile's time and answer in meaningless words. All else is real."""

    __pydantic_config__ = STRICT

    profile: ProfileOrPath = ""
    """Hardware profile: `a100-70b`, `h100-70b-tp4`, `cpu`, `instant`, or a file written by `pilotfish profile`. Empty:
    real engines."""
    acceptance: float | tuple[float, ...] = 0.8
    """Probability that a draft token is accepted if all before it were. A list has one per position, the last for all
    further ones."""
    time_scale: float = 1.0
    """Factor on every step's time. If speed-ups at 1 and 5 differ, this machine's CPU limits the result."""
    seed: int = 0
    """Decides which tokens are accepted; does not change the text."""
    max_sequences: int = 0
    """Open sequences per replica; 0: as the profile says."""
    max_batch_tokens: int = 0
    """Maximum tokens in a step; 0: as the profile says."""
    kv_cache_tokens: int = 0
    """KV cache of a replica, in tokens; 0: as the profile says."""

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
