"""The cost of a step by the roofline model (Williams et al. 2009, doi:10.1145/1498765.1498785)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pilotfish.config.fields import STRICT, require


@dataclass(frozen=True, kw_only=True)
class RooflineCost:
    """overhead + max(reading the weights, computing the rows) + reading the KV cache.

    Few rows wait for the weights, however many they are; many rows wait for the arithmetic. The KV cache is
    read by the attention kernels, between the linears and not beside them, so that its time adds up.
    """

    __pydantic_config__ = STRICT

    kind: Literal["roofline"] = "roofline"
    weights_s: float
    """Seconds to read all weights once: weight bytes / (GPUs x memory bandwidth x efficiency)."""
    token_s: float
    """Seconds to compute a token row: 2 x parameters / (GPUs x FLOP/s x efficiency)."""
    context_token_s: float = 0.0
    """Seconds to read a context token's keys and values: KV bytes / (GPUs x memory bandwidth x efficiency)."""
    overhead_s: float = 0.0
    """Seconds of every step, whatever it computes: launching, sampling, synchronising."""

    def __post_init__(self) -> None:
        for name in ("weights_s", "token_s", "context_token_s", "overhead_s"):
            require(getattr(self, name) >= 0, f"{name} of a roofline must be at least 0 seconds")

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """See StepCost. How the rows are spread over sequences makes no difference."""
        del num_sequences
        if num_tokens <= 0:
            return 0.0
        linear_s = max(self.weights_s, num_tokens * self.token_s)
        return self.overhead_s + linear_s + num_context_tokens * self.context_token_s
