"""What one request asks for, and how its client behaves."""

import random
from dataclasses import dataclass
from typing import Literal

from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import SamplingParams

Manner = Literal["patient", "cancels", "reads slowly", "has a deadline"]
SHARES: dict[Manner, float] = {"patient": 0.7, "cancels": 0.15, "reads slowly": 0.1, "has a deadline": 0.05}
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One request."""

    prompt: str
    sampling: SamplingParams
    manner: Manner
    num_read: int
    """Tokens after which a client that cancels has had enough."""
    timeout_s: float
    is_chat: bool = False
    """Whether the prompt is a user's turn."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What requests ask for."""

    questions: tuple[str, ...] = ()
    """Drawn from these, through the chat template; empty: each request asks something else, as raw text."""
    max_tokens: tuple[int, int] = (16, 96)
    slow_reader_tokens: tuple[int, int] = (300, 600)


def plans(count: int, seed: int, workload: Workload) -> list[Plan]:
    """Requests drawn at random, the same for the same seed."""
    dice = random.Random(seed)
    manners = dice.choices(list(SHARES), list(SHARES.values()), k=count)
    return [
        _plan(f"request {index} of {seed}: tell me of the sea", manner, dice, workload)
        for index, manner in enumerate(manners)
    ]


def _plan(prompt: str, manner: Manner, dice: random.Random, workload: Workload) -> Plan:
    max_tokens = dice.randint(*(workload.slow_reader_tokens if manner == "reads slowly" else workload.max_tokens))
    temperature, seed = dice.choice(((0.0, 0), (0.9, dice.getrandbits(31))))
    if workload.questions:  # few enough for each to be asked undisturbed as well
        prompt, seed = dice.choice(workload.questions), min(seed, 1)
    return Plan(
        prompt,
        SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens),
        manner,
        num_read=dice.randint(1, max_tokens),
        timeout_s=dice.uniform(0.02, 0.4) if manner == "has a deadline" else _TIMEOUT_S,
        is_chat=bool(workload.questions),
    )


def generate_request(plan: Plan) -> pb.GenerateRequest:
    """As the public API takes it."""
    sampling = plan.sampling
    turn = pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content=plan.prompt)]) if plan.is_chat else None
    return pb.GenerateRequest(
        text=None if plan.is_chat else plan.prompt,
        chat=turn,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        ignore_eos=True,
    )
