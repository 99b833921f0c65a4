"""Who decides for a simulated sequence."""

from __future__ import annotations

from typing import Protocol

from orchestrator.control.decision import Decision, Observation
from orchestrator.control.measurements import Measurements
from orchestrator.control.reasons import Reason
from orchestrator.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.types import SamplingParams

ENDLESS = 10**9
"""Tokens of an answer that no simulation sees the end of."""


class Decider(Protocol):
    """A controller, or what stands in for one."""

    def next_k(self, observation: Observation) -> Decision: ...

    def close(self) -> None: ...


class FixedLength:
    """Always the same K after the first token; 0 is a deployment without drafters."""

    def __init__(self, num_draft_tokens: int) -> None:
        self._num_draft_tokens = num_draft_tokens

    def next_k(self, observation: Observation) -> Decision:
        if self._num_draft_tokens == 0:
            return Decision(0, observation.num_remaining_tokens, Reason.MODE_OFF)
        if observation.num_output_tokens == 0:
            return Decision(0, 1, Reason.FIRST_TOKEN)
        return Decision(self._num_draft_tokens, 1, Reason.REQUESTED)

    def close(self) -> None:
        """Holds nothing."""


def adaptive(measurements: Measurements, num_draft_tokens: int, config: SpeculationConfig | None = None) -> Controller:
    """The orchestrator's own, of a request in mode `auto` that allows so many draft tokens."""
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=ENDLESS),
        speculation=SpeculationOptions(mode="auto"),
        num_speculative_tokens=num_draft_tokens,
    )
    return Controller(request, measurements, config or SpeculationConfig())
