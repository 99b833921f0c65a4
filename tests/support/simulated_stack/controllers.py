"""Who decides for a simulated sequence: the orchestrator's own controller, of a request in one of its modes."""

from orchestrator.control.controller import Controller
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import GenerationRequest, Mode, SpeculationOptions
from pilotfish.types import SamplingParams

ENDLESS = 10**9
"""Tokens of an answer that no simulation sees the end of."""


def controller(mode: Mode, state: ControlState, num_draft_tokens: int, *, in_target: bool = False) -> Controller:
    """Of a request that allows so many draft tokens a round; in mode `on` it drafts as many, as long as the answer
    has room for them. in_target: whether a head in the target drafts."""
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=ENDLESS),
        speculation=SpeculationOptions(mode=mode),
        num_speculative_tokens=num_draft_tokens,
    )
    return (InTargetController if in_target else Controller)(request, state)
