"""How fast a placed stack decodes for requests without an end."""

from __future__ import annotations

from orchestrator.requests.request import GenerationRequest, Mode, SpeculationOptions
from pilotfish.types import SamplingParams
from tests.support.simulated_stack.controllers import ENDLESS, controller
from tests.support.simulated_stack.placed_stack import PlacedStack
from tests.support.simulated_stack.sequence import SimulatedSequence

_PROMPT_TOKENS = 512
_WARM_UP_TOKENS = 64
_LOOK_S = 0.05


def steady_tokens_per_s(
    stack: PlacedStack,
    mode: Mode,
    num_draft_tokens: int,
    num_sequences: int,
    num_tokens: int,
    *,
    first_number: int = 0,
) -> float:
    """Of all sequences together, while each decodes about num_tokens. first_number: other ones make other texts."""
    for number in range(first_number, first_number + num_sequences):
        decides = controller(mode, stack.control, num_draft_tokens, in_target=stack.in_target)
        SimulatedSequence(stack, decides, _request(number)).start()
    goals = _WARM_UP_TOKENS * num_sequences, (_WARM_UP_TOKENS + num_tokens) * num_sequences
    while stack.num_tokens < goals[-1]:
        stack.world.run(stack.world.now_s + _LOOK_S)
    (start_s, first), (end_s, last) = (next(at for at in stack.arrivals if at[1] >= goal) for goal in goals)
    return (last - first) / (end_s - start_s)


def _request(number: int) -> GenerationRequest:
    return GenerationRequest(
        prompt_token_ids=(100 + number,) * _PROMPT_TOKENS,
        sampling=SamplingParams(temperature=1.0, seed=number, max_tokens=ENDLESS),
        speculation=SpeculationOptions(),
        num_speculative_tokens=0,
    )
