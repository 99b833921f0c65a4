"""What one engine step costs: the interface, and costs by formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pilotfish.config.fields import STRICT, require


class StepCost(Protocol):
    """The duration of an engine step, given what it computes."""

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """Seconds of one step.

        num_sequences: sequences in the step.
        num_tokens: token rows that it computes over all of them: 1 for a decode, K + 1 for a verification, the
            chunk for a prefill. 0 costs nothing.
        num_context_tokens: length of their contexts, added up.
        """


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


@dataclass(frozen=True)
class ScaledCost:
    """Hardware that is slower by one factor in everything: what a draft step costs of a verification stays the same."""

    cost: StepCost
    factor: float

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """See StepCost."""
        return self.factor * self.cost.step_s(num_sequences, num_tokens, num_context_tokens)
