"""Requests to an emulated stack, and when their tokens came."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import psutil
from shared.asking import Answer, Arrival, ask

from pilotfish.config import Config, EmulationConfig
from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

PROFILE = "a100-70b"
MAX_DRAFT_TOKENS = 8
SERVICES = ("orchestrator", "target_service", "draft_service")


def emulated_config(
    acceptance: float, *, draft_ahead: Literal["auto", "off", "on"] = "auto", time_scale: float = 1.0
) -> Config:
    """One target and one draft replica of a profile; requests say themselves how they speculate."""
    config = Config(emulation=EmulationConfig(profile=PROFILE, acceptance=acceptance, time_scale=time_scale))
    speculation = dataclasses.replace(
        config.orchestrator.speculation, num_speculative_tokens=MAX_DRAFT_TOKENS, draft_ahead=draft_ahead
    )
    orchestrator = dataclasses.replace(config.orchestrator, speculation=speculation, max_concurrent_requests=512)
    return dataclasses.replace(config, orchestrator=orchestrator)


def cpu_times_s(stack: LocalStack) -> dict[str, float]:
    """Processor time that each service, and this client, has taken so far."""
    processes = {"client": psutil.Process()}
    processes |= {name: psutil.Process(stack.pid(name)) for name in SERVICES}
    return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}


MODES = {"auto": pb.SPECULATION_MODE_AUTO, "off": pb.SPECULATION_MODE_OFF, "on": pb.SPECULATION_MODE_ON}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of decoding."""

    elapsed_s: float = 0.0
    num_tokens: int = 0
    rounds_s: tuple[float, ...] = ()
    """Times between arrivals."""

    def __add__(self, other: Span) -> Span:
        return Span(
            self.elapsed_s + other.elapsed_s, self.num_tokens + other.num_tokens, self.rounds_s + other.rounds_s
        )

    @property
    def num_rounds(self) -> int:
        return len(self.rounds_s)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.elapsed_s

    @property
    def columns(self) -> dict[str, float]:
        """What a report's row says of its rounds."""
        return {
            "round_ms": 1e3 * self.elapsed_s / self.num_rounds,
            "tokens_per_round": self.num_tokens / self.num_rounds,
            "rounds": self.num_rounds,
        }


def span_of(answer: Answer, num_left_out: int) -> Span:
    """The span between the first arrival and the last one that has num_left_out tokens after it."""
    first, *others = answer.arrivals
    end = len(answer.token_ids) - num_left_out
    num_tokens = 0
    last_s, rounds_s = first.time_s, []
    for arrival in others:
        if first.num_tokens + num_tokens + arrival.num_tokens > end:
            break
        num_tokens += arrival.num_tokens
        rounds_s.append(arrival.time_s - last_s)
        last_s = arrival.time_s
    return Span(last_s - first.time_s, num_tokens, tuple(rounds_s))


class Client:
    """Asks one orchestrator. Every request has another prompt and another seed."""

    def __init__(self, stub: pb_grpc.InferenceStub) -> None:
        self._stub = stub
        self._num_asked = 0

    async def ask(
        self,
        mode: str,
        num_tokens: int,
        *,
        num_speculative_tokens: int | None = None,
        on_arrival: Callable[[Arrival], None] | None = None,
    ) -> Answer:
        """One answer of num_tokens tokens."""
        self._num_asked += 1
        number = self._num_asked
        request = pb.GenerateRequest(
            text=f"Request {number}.",
            max_tokens=num_tokens,
            seed=number,
            ignore_eos=True,
            speculation=pb.SpeculationOptions(mode=MODES[mode], num_speculative_tokens=num_speculative_tokens),
        )
        return await ask(self._stub, request, on_arrival)
