"""Another cost, so many times as long."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.emulation.profiles.step_cost import StepCost


@dataclass(frozen=True)
class ScaledCost:
    """Hardware that is slower by one factor in everything: what a draft step costs of a verification stays the same."""

    cost: StepCost
    factor: float

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """See StepCost."""
        return self.factor * self.cost.step_s(num_sequences, num_tokens, num_context_tokens)
