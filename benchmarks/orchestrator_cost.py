"""What does the orchestrator cost per token, and how much does one process of it sustain?

Its replicas compute nothing (`echo/core.py`), so that it has as much to do as it can take. It has a processor core of
its own where the machine has two; the replicas and the clients share the others, and where they cannot keep up says
nothing about the orchestrator. So the figure is its CPU time: the tokens that it passes on in a second of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop
from echo.core import FIRST_TOKEN_ID
from echo.replica import replica
from report import Report, parser

from pilotfish.client.answer import GenerateOptions, TokenPrompt
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import Config, HttpConfig, OrchestratorConfig, TelemetryConfig, config_to_yaml
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder
from pilotfish.launch.specs import free_ports
from pilotfish.launch.tether import tethered

STREAMS = (1, 16, 64, 256)
PROMPT_TOKENS = 64
TIMEOUT_S = 300.0
ASKED_TOKENS_PER_S = 20_000
ASKED_STREAMS = 256
REPOSITORY = Path(__file__).resolve().parent.parent


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


@contextlib.asynccontextmanager
async def orchestrator(
    target: str, draft: str, telemetry: TelemetryConfig | None = None
) -> AsyncIterator[tuple[str, psutil.Process]]:
    """Start one over these replicas; gives its address and process."""
    (port,) = free_ports(1)
    config = Config(
        orchestrator=OrchestratorConfig(
            port=port,
            target_addresses=(target,),
            draft_addresses=(draft,),
            max_concurrent_requests=2 * max(STREAMS),
            http=HttpConfig(port=-1),
        ),
        telemetry=telemetry or TelemetryConfig(),
    )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(config_to_yaml(config))
        file.flush()
        process = await asyncio.create_subprocess_exec(
            *tethered("orchestrator", "--config", file.name),
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            if not await process.stdout.readline():
                raise SystemExit("the orchestrator did not start")
            yield f"127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def isolate(*orchestrator_processes: psutil.Process) -> bool:
    """Give them the first core, and this process and the replicas the others; whether there are enough."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return False
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        _pin(process, [first] if process in orchestrator_processes else others)
    return True


def _pin(process: psutil.Process, cores: Iterable[int]) -> None:
    for thread in process.threads():  # each has an affinity of its own
        os.sched_setaffinity(thread.id, cores)


async def measure(address: str, process: psutil.Process, num_streams: int, num_tokens: int, speculation: str) -> Cost:
    """The cost of num_streams answers at once, of num_tokens each."""
    options = GenerateOptions(max_tokens=num_tokens, temperature=0, ignore_eos=True, speculation=speculation)
    count = Count()
    async with AsyncInferenceClient(address, num_channels=4) as client:
        before, start_s = process.cpu_times(), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(num_streams):
                prompt = TokenPrompt(tuple(range(FIRST_TOKEN_ID + number, FIRST_TOKEN_ID + number + PROMPT_TOKENS)))
                group.create_task(client.follow(prompt, options, timeout_s=TIMEOUT_S, on_tokens=count.add))
        wall_s, after = time.perf_counter() - start_s, process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Cost(count.num_tokens, count.num_messages, wall_s, cpu_s)


async def run(report: Report, num_tokens: int) -> None:
    """All rows of the report."""
    tokenizer = str(emulated_tokenizer_folder(Config()))
    async with (
        replica("target", tokenizer=tokenizer) as target,
        replica("draft", tokenizer=tokenizer) as draft,
        orchestrator(target, draft) as (address, process),
    ):
        report.conditions["orchestrator"] = "on a core of its own" if isolate(process) else "shares its core"
        for speculation in ("off", "on"):
            for num_streams in STREAMS:
                await measure(address, process, num_streams, 16, speculation)  # warms up
                # One stream alone is too slow for as many tokens.
                cost = await measure(address, process, num_streams, num_tokens // max(num_streams, 16), speculation)
                _add(report, speculation, num_streams, cost)


def _add(report: Report, speculation: str, num_streams: int, cost: Cost) -> None:
    report.row(
        speculation=speculation,
        streams=num_streams,
        tokens_per_s=round(cost.num_tokens / cost.wall_s),
        per_message=cost.num_tokens / cost.num_messages,
        cpu_us_per_token=cost.cpu_us_per_token,
        cores=cost.cpu_s / cost.wall_s,
    )
    if num_streams == ASKED_STREAMS and speculation == "off":
        name = f"tokens in a second of the orchestrator's CPU time, {num_streams} streams"
        report.check(name, round(1e6 / cost.cpu_us_per_token), ASKED_TOKENS_PER_S, "tokens/s", "at least")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_tokens = 100_000 if options.quick else 400_000
    conditions = {"engines": "none, they answer at once", "tokens": num_tokens, "prompt tokens": PROMPT_TOKENS}
    report = Report("What does the orchestrator cost per token?", conditions)
    uvloop.run(run(report, num_tokens))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
