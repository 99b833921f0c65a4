"""What do the services cost over the engine alone, in speed and in memory?

The same prompt is decoded plainly for the same number of tokens, in turn, by an engine in the client's process and
through client, orchestrator and target service. CPU of the processes is per token. Resident memory of the
target service is held against the model's bytes.

Which engine gets its memory first matters: on our virtual machine the first was up to 10 % slower. So both start anew
several times, in both orders; of each pair of starts the geometric mean counts.
"""

import asyncio
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import torch
import uvloop
from shared.report import Report, parser

from pilotfish.chat import ChatMessage
from pilotfish.client.answer import GenerateOptions
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import Config
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.factory import build_engine
from pilotfish.launch.local_stack import LocalStack
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Verdict
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import SamplingParams

PROMPT = "Write a long story about a harbour, its lighthouse and the people who live there."
NUM_TOKENS = 256
COLUMNS = {
    "first": "first",
    "alone_tokens_per_s": "alone, tokens/s",
    "tokens_per_s": "stack",
    "over_engine": "ratio",
    "error": "error",
    "client_cpu_ms": "client, CPU ms",
    "orchestrator_cpu_ms": "orchestrator",
    "front_cpu_ms": "target's front",
}


def engine_alone(core: EngineCore, prompt: tuple[int, ...], sequence_id: int) -> float:
    """Seconds for NUM_TOKENS tokens by the core alone, prefill included."""
    start = time.perf_counter()
    core.submit(OpenSequence(sequence_id, prompt, SamplingParams(temperature=0, max_tokens=NUM_TOKENS)))
    core.submit(Decode(sequence_id, len(prompt), NUM_TOKENS))
    num_tokens = 0
    while core.has_work:
        num_tokens += sum(len(event.token_ids) for event in core.step() if isinstance(event, Verdict))
    elapsed_s = time.perf_counter() - start
    core.submit(CloseSequence(sequence_id))
    assert num_tokens == NUM_TOKENS
    return elapsed_s


async def through_stack(address: str) -> tuple[float, int]:
    """(seconds for the same through the services, as a connected client sees it; messages with tokens)."""
    options = GenerateOptions(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True, speculation="off")
    messages: list[int] = []
    async with AsyncInferenceClient(address) as client:
        start = time.perf_counter()
        await client.follow(
            (ChatMessage("user", PROMPT),),
            options,
            timeout_s=600,
            on_tokens=lambda token_ids: messages.append(len(token_ids)),
        )
        elapsed_s = time.perf_counter() - start
    assert sum(messages) == NUM_TOKENS
    return elapsed_s, len(messages)


class ServicesPath:
    """A running stack, and what was measured of it."""

    def __init__(self, stack: LocalStack) -> None:
        self._address = stack.address
        self._front = psutil.Process(stack.pid("target_service"))
        (self._engine,) = self._front.children(recursive=True)
        orchestrator = psutil.Process(stack.pid("orchestrator"))
        self._processes = {"client": psutil.Process(), "orchestrator": orchestrator, "front": self._front}
        self.forget()

    @property
    def resident_bytes(self) -> tuple[int, int]:
        """(of the target service, of its front alone)."""
        front, engine = self._front.memory_info().rss, self._engine.memory_info().rss
        return front + engine, front

    def measure(self, runner: asyncio.Runner) -> None:
        before_s = self._cpu_times_s()
        elapsed_s, num_messages = runner.run(through_stack(self._address))
        for name, cpu_s in self._cpu_times_s().items():
            self._cpu_s[name] += cpu_s - before_s[name]
        self.times_s.append(elapsed_s)
        self._num_messages += num_messages

    def forget(self) -> None:
        """Begin anew: what was measured so far was a warm-up."""
        self.times_s: list[float] = []
        self._num_messages, self._cpu_s = 0, dict.fromkeys(self._processes, 0.0)

    def row(self, alone_s: Sequence[float]) -> dict[str, float]:
        """What was measured; alone_s: the engine's times in the same turns."""
        num_tokens = NUM_TOKENS * len(self.times_s)
        return {
            "alone_tokens_per_s": NUM_TOKENS / statistics.median(alone_s),
            "tokens_per_s": NUM_TOKENS / statistics.median(self.times_s),
            "over_engine": statistics.median(alone / own for alone, own in zip(alone_s, self.times_s, strict=True)),
            "tokens_per_message": num_tokens / self._num_messages,
            **{f"{name}_cpu_ms": 1000 * cpu_s / num_tokens for name, cpu_s in self._cpu_s.items()},
        }

    def _cpu_times_s(self) -> dict[str, float]:
        """User and system."""
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        return {name: each.user + each.system for name, each in times.items()}


def measure_in_turns(core: EngineCore, path: ServicesPath, samples: int) -> list[float]:
    """Seconds of the engine alone; the path keeps its own."""
    tokenizer = Tokenizer.load(Path(core.model.tokenizer_path))
    prompt = tuple(tokenizer.apply_chat_template([ChatMessage("user", PROMPT)]))
    alone_s = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for index in range(-1, samples):
            torch.set_num_threads(1)
            alone_s.append(engine_alone(core, prompt, index + 2))
            path.measure(runner)
            if index < 0:  # the first of each warms up
                alone_s.clear()
                path.forget()
    return alone_s


def measure_start(samples: int, *, stack_first: bool) -> dict[str, Any]:
    """What is measured in a process of its own, whose memory is given back at its end."""
    config = Config()
    core = None if stack_first else build_engine(config, "target")
    with LocalStack(config) as stack:
        path = ServicesPath(stack)
        core = core or build_engine(config, "target")
        row = path.row(measure_in_turns(core, path, samples))
        resident, front = path.resident_bytes
    weights = (Path(core.model.tokenizer_path) / "model.safetensors").stat().st_size
    pool = core.kv_cache.pool.num_usable * core.kv_bytes_per_block
    sizes = {"target": resident, "front": front, "weights": weights, "kv_pool": pool}
    return {
        "first": "stack" if stack_first else "engine",
        **row,
        **{f"{name}_mb": num_bytes / 1e6 for name, num_bytes in sizes.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    pairs, samples = (1, 2) if options.quick else (4, 4)
    report = Report(
        "What do the services cost over the engine alone?",
        {
            "model": Config().target.model,
            "tokens": NUM_TOKENS,
            "samples of each start": samples,
            "sampling": "greedy",
            "in flight": 1,
        },
        columns=COLUMNS,
    )
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for stack_first in (True, False) * pairs:
            rows.append(processes.submit(measure_start, samples, stack_first=stack_first).result())
            report.row(**rows[-1])
    speeds = [row["over_engine"] for row in rows]
    ratios = [statistics.geometric_mean(pair) for pair in zip(speeds[::2], speeds[1::2], strict=True)]
    both = {"over_engine": statistics.mean(ratios)}
    if pairs > 1:
        both["error"] = statistics.stdev(ratios) / math.sqrt(pairs)
    report.row(first="both", **both)
    name = "plain decoding through the stack over the engine alone"
    report.check(name, both["over_engine"], 0.95, kind="at least")
    memory = max(row["target_mb"] / (1.5 * row["weights_mb"] + row["kv_pool_mb"]) for row in rows)
    report.check("target resident set over weights x 1.5 + KV pool", memory, 1.0)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
