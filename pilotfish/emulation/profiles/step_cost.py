"""What one engine step costs: the interface."""

from __future__ import annotations

from typing import Protocol


class StepCost(Protocol):
    """The duration of an engine step, given what it computes."""

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        """Seconds of one step.

        num_sequences: sequences in the step.
        num_tokens: token rows that it computes over all of them: 1 for a decode, K + 1 for a verification, the
            chunk for a prefill. 0 costs nothing.
        num_context_tokens: length of their contexts, added up.
        """
