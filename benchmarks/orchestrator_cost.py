"""What does the orchestrator cost per token, and how much does one process of it sustain?

The whole stack runs as in production, over emulated engines that take no time. The orchestrator has a processor core
of its own where the machine has two; the replicas and the clients share the others, and whatever they cannot keep up
with says nothing about the orchestrator. So the figure is its CPU time: tokens it passes on in a second of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil
import uvloop
from report import Report, parser

from pilotfish.client.answer import GenerateOptions, TokenPrompt
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import Config, EmulationConfig, EngineConfig, OrchestratorConfig, TargetConfig
from pilotfish.launch.local_stack import LocalStack

STREAMS = (1, 16, 64, 256)
PROMPT_TOKENS = 64
FIRST_TOKEN_ID = 1000
TIMEOUT_S = 300.0
ASKED_TOKENS_PER_S = 20_000
ASKED_STREAMS = 256


@dataclass(slots=True)
class Count:
    """What the clients got."""

    num_tokens: int = 0
    num_messages: int = 0

    def add(self, token_ids: Sequence[int]) -> None:
        self.num_tokens += len(token_ids)
        self.num_messages += 1


@dataclass(frozen=True, slots=True)
class Cost:
    """One measurement."""

    num_tokens: int
    num_messages: int
    wall_s: float
    cpu_s: float
    """Of the orchestrator's process, all its threads, user and system."""

    @property
    def cpu_us_per_token(self) -> float:
        return 1e6 * self.cpu_s / self.num_tokens


async def ask(address: str, num_streams: int, options: GenerateOptions) -> tuple[Count, float]:
    """Stream num_streams answers at once; what came, and the seconds until the last of it."""
    count = Count()
    async with AsyncInferenceClient(address, num_channels=4) as client:
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(num_streams):
                prompt = TokenPrompt(tuple(range(FIRST_TOKEN_ID + number, FIRST_TOKEN_ID + number + PROMPT_TOKENS)))
                group.create_task(client.follow(prompt, options, timeout_s=TIMEOUT_S, on_tokens=count.add))
    return count, time.perf_counter() - start_s


def measure(stack: LocalStack, num_streams: int, options: GenerateOptions) -> Cost:
    """The orchestrator's cost of num_streams answers at once."""
    process = psutil.Process(stack.pid("orchestrator"))
    before = process.cpu_times()
    count, wall_s = uvloop.run(ask(stack.address, num_streams, options))
    after = process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Cost(count.num_tokens, count.num_messages, wall_s, cpu_s)


def isolate(pid: int) -> bool:
    """Give a process the first core, and this one and the rest of the stack the others; whether there are enough."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return False
    family = psutil.Process().children(recursive=True)
    for process in (psutil.Process(), *family):
        _pin(process, [first] if process.pid == pid else others)
    return True


def _pin(process: psutil.Process, cores: Iterable[int]) -> None:
    for thread in process.threads():  # each has an affinity of its own
        os.sched_setaffinity(thread.id, cores)


def config() -> Config:
    engine = EngineConfig(max_sequences=2 * ASKED_STREAMS)
    return Config(
        emulation=EmulationConfig(profile="instant"),
        target=TargetConfig(engine=engine),
        orchestrator=OrchestratorConfig(max_concurrent_requests=2 * ASKED_STREAMS),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_tokens = 20_000 if options.quick else 200_000
    with LocalStack(config()) as stack:
        is_isolated = isolate(stack.pid("orchestrator"))
        conditions = {
            "engines": "emulated, no time of their own",
            "tokens": num_tokens,
            "prompt tokens": PROMPT_TOKENS,
            "orchestrator": "on a core of its own" if is_isolated else "shares its core",
        }
        report = Report("What does the orchestrator cost per token?", conditions)
        for speculation in ("off", "on"):
            for num_streams in STREAMS:
                cost = _cost(stack, num_streams, num_tokens, speculation)
                report.row(
                    speculation=speculation,
                    streams=num_streams,
                    tokens_per_s=round(cost.num_tokens / cost.wall_s),
                    tokens_per_message=cost.num_tokens / cost.num_messages,
                    cpu_us_per_token=cost.cpu_us_per_token,
                    cores=cost.cpu_s / cost.wall_s,
                )
                if num_streams == ASKED_STREAMS and speculation == "off":
                    name = f"tokens per second of the orchestrator's CPU time, {num_streams} streams"
                    report.check(name, round(1e6 / cost.cpu_us_per_token), ASKED_TOKENS_PER_S, "tokens/s", "at least")
    report.finish(options)
    return 0


def _cost(stack: LocalStack, num_streams: int, num_tokens: int, speculation: str) -> Cost:
    # One stream alone is too slow for as many tokens.
    share = max(64, num_tokens // max(num_streams, 16))
    options = GenerateOptions(max_tokens=share, temperature=0, ignore_eos=True, speculation=speculation)
    measure(stack, num_streams, GenerateOptions(max_tokens=16, temperature=0, ignore_eos=True))  # warms up
    return measure(stack, num_streams, options)


if __name__ == "__main__":
    sys.exit(main())
