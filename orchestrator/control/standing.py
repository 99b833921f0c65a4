"""Requests that never speculate, whatever is measured."""

from __future__ import annotations

from orchestrator.control.reasons import Reason
from orchestrator.requests.request import GenerationRequest
from pilotfish.config import SpeculationConfig


def standing_reason(request: GenerationRequest, config: SpeculationConfig) -> Reason | None:
    """Why this request never speculates; None if it may."""
    mode = request.speculation.mode
    if mode == "off":
        return Reason.MODE_OFF
    if request.num_speculative_tokens == 0:
        return Reason.NO_DRAFT_TOKENS
    if mode == "auto" and request.sampling.max_tokens < config.min_output_tokens:
        return Reason.SHORT_OUTPUT
    return None
