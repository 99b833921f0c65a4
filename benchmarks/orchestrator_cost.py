"""What does the orchestrator cost per token, how much does one process of it sustain, and what do HTTP and traces add?

Its replicas compute nothing (emulation profile `instant`), so that it has as much to do as it can take; on real models
it has far less. It has a processor core of its own where the machine has two; the replicas and the clients share the
others, and where they cannot keep up says nothing about the orchestrator. So the figure is its CPU time: the tokens
that it passes on in a second of that. `--http` asks the same over server-sent events, `--traces` asks further
orchestrators that send their spans to a collector; variants are measured in turns, and the calmest turn of each
counts: what else runs on the machine can only add to a CPU time.
"""

import asyncio
import contextlib
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import psutil
import shared.checkout  # noqa: F401  # finds tests.support
import uvloop
from shared.asking import PROMPT_TOKENS, Heard, Protocol, listen, orchestrator
from shared.report import Report, parser

from pilotfish.config import Config, EmulationConfig, OrchestratorConfig, TelemetryConfig
from pilotfish.launch.local_stack import LocalStack
from tests.support.otlp_collector import OtlpCollector

STREAMS = (1, 16, 64, 256, 1000)
ASKED_TOKENS_PER_S, ASKED_STREAMS = 20_000, 256
ASKED_FIRST_TOKEN_MS = 5.0
"""What HTTP may add to the time to the first token of one stream."""
ASKED_TRACES_LOSS, TRACED_STREAMS = 0.02, 64
ASKED_GROWTH = 1.05
"""Growth of the resident memory, from the first time that all streams were there to the last."""
FLUSH_S = 1.5
"""Spans are sent once a second; their cost counts, too."""
TURNS, QUICK_TURNS = 8, 3
"""Turns of each variant, where there are several."""
ROUND_SPANS = {"off": 0, "sampled": 16, "all": 10**6}
COLUMNS = {
    "speculation": "spec.",
    "streams": "streams",
    "variant": "variant",
    "tokens_per_s": "tok/s",
    "per_message": "a message",
    "cpu_us_per_token": "CPU us/token",
    "first_token_ms": "first ms",
    "slowest_over_median": "slowest/ median",
    "resident_mb": "MB",
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of asking one orchestrator."""

    protocol: Protocol
    address: str
    process: psutil.Process
    has_traces: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """One measurement."""

    heard: Heard
    wall_s: float
    cpu_s: float
    """Processor time of the orchestrator's process, all its threads, user and system."""
    resident_bytes: int

    @property
    def cpu_us_per_token(self) -> float:
        return 1e6 * self.cpu_s / self.heard.num_tokens


CONFIG = Config(
    emulation=EmulationConfig(profile="instant"),
    orchestrator=OrchestratorConfig(max_concurrent_requests=2 * max(STREAMS)),
)


def isolate(*orchestrator_processes: psutil.Process) -> bool:
    """Give them the first core, and this process and the replicas the others; whether there are enough."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return False
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for thread in process.threads():  # each has an affinity of its own
            os.sched_setaffinity(thread.id, [first] if process in orchestrator_processes else others)
    return True


@contextlib.asynccontextmanager
async def variants(*, http: bool, traces: bool) -> AsyncIterator[dict[str, Variant]]:
    """The replicas and all orchestrators over them, started; plain gRPC comes first."""
    async with contextlib.AsyncExitStack() as stack:
        services = stack.enter_context(LocalStack(CONFIG))
        process = psutil.Process(services.pid("orchestrator"))
        result = {"gRPC": Variant("gRPC", services.address, process)}
        if http:
            result["HTTP"] = Variant("HTTP", services.http_url, process)
        for rounds, max_round_spans in ROUND_SPANS.items() if traces else ():
            collector = await stack.enter_async_context(OtlpCollector())
            telemetry = TelemetryConfig(otlp_endpoint=collector.endpoint, max_round_spans=max_round_spans)
            traced = stack.enter_context(orchestrator(dataclasses.replace(services.config, telemetry=telemetry)))
            traced_process = psutil.Process(traced.pid)
            result[f"traces, rounds {rounds}"] = Variant("gRPC", traced.address, traced_process, has_traces=True)
        yield result


async def measure(variant: Variant, num_streams: int, num_tokens: int, speculation: Literal["off", "on"]) -> Cost:
    """The cost of num_streams answers at once, of num_tokens each."""
    before, start_s = variant.process.cpu_times(), time.perf_counter()
    heard = await listen(variant.protocol, variant.address, num_streams, num_tokens=num_tokens, speculation=speculation)
    wall_s = time.perf_counter() - start_s
    if variant.has_traces:
        await asyncio.sleep(FLUSH_S)
    after = variant.process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Cost(heard, wall_s, cpu_s, variant.process.memory_info().rss)


async def run(report: Report, num_tokens: int, num_turns: int, *, http: bool, traces: bool) -> None:
    """All rows of the report."""
    async with variants(http=http, traces=traces) as chosen:
        is_alone = isolate(*(variant.process for variant in chosen.values()))
        report.conditions["orchestrator"] = "on a core of its own" if is_alone else "shares its core"
        crowds: dict[str, list[int]] = {name: [] for name in chosen}
        for speculation in ("off", "on"):
            for num_streams in STREAMS:
                costs = await _in_turns(chosen, num_streams, num_tokens, num_turns, speculation)
                _add(report, speculation, num_streams, costs)
                for name, each in costs.items() if num_streams == max(STREAMS) else ():
                    crowds[name] += [cost.resident_bytes for cost in each]
    for name, resident_bytes in crowds.items():
        growth = resident_bytes[-1] / resident_bytes[0]
        report.check(f"{name}: memory with {max(STREAMS)} streams, last time over first", growth, ASKED_GROWTH)


async def _in_turns(
    chosen: Mapping[str, Variant],
    num_streams: int,
    num_tokens: int,
    num_turns: int,
    speculation: Literal["off", "on"],
) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in chosen}
    # One stream alone is too slow for as many tokens.
    each = num_tokens // max(num_streams, 16)
    for turn in range(-1, num_turns):
        names = list(chosen)[turn % len(chosen) :] + list(chosen)[: turn % len(chosen)]
        for name in names:
            cost = await measure(chosen[name], num_streams, each if turn >= 0 else 16, speculation)
            if turn >= 0:  # the first warms up
                costs[name].append(cost)
    return costs


def _add(report: Report, speculation: str, num_streams: int, costs: Mapping[str, Sequence[Cost]]) -> None:
    best = {name: min(each, key=lambda cost: cost.cpu_us_per_token) for name, each in costs.items()}
    first_ms = {
        name: 1e3 * statistics.median(value for cost in each for value in cost.heard.first_token_s)
        for name, each in costs.items()
    }
    for name, cost in best.items():
        report.row(
            speculation=speculation,
            streams=num_streams,
            variant=name,
            tokens_per_s=round(cost.heard.num_tokens / cost.wall_s),
            per_message=cost.heard.num_tokens / cost.heard.num_messages,
            cpu_us_per_token=cost.cpu_us_per_token,
            cores=cost.cpu_s / cost.wall_s,
            first_token_ms=first_ms[name],
            slowest_over_median=max(cost.heard.total_s) / statistics.median(cost.heard.total_s),
            resident_mb=cost.resident_bytes / 1e6,
        )
    if num_streams == ASKED_STREAMS and speculation == "off":
        name = f"tokens in a second of the orchestrator's CPU time, {num_streams} streams"
        report.check(name, round(1e6 / best["gRPC"].cpu_us_per_token), ASKED_TOKENS_PER_S, "tokens/s", "at least")
    if num_streams == 1 and speculation == "off" and "HTTP" in best:
        added_ms = first_ms["HTTP"] - first_ms["gRPC"]
        report.check("HTTP: added time to first token", added_ms, ASKED_FIRST_TOKEN_MS, "ms")
    name = "traces, rounds off"
    if num_streams == TRACED_STREAMS and name in best:
        loss = 1 - best["gRPC"].cpu_us_per_token / best[name].cpu_us_per_token
        report.check(f"throughput lost to {name}, speculation {speculation}", loss, ASKED_TRACES_LOSS, "of 1")


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--http", action="store_true", help="also over server-sent events")
    options_parser.add_argument("--traces", action="store_true", help="also with traces, by how rounds are traced")
    options = options_parser.parse_args(arguments)
    num_tokens = 100_000 if options.quick else 400_000
    num_turns = (QUICK_TURNS if options.quick else TURNS) if options.http or options.traces else 1
    conditions = {
        "engines": "none, they answer at once",
        "tokens": num_tokens,
        "prompt tokens": PROMPT_TOKENS,
        "turns": num_turns,
    }
    report = Report("What does the orchestrator cost per token?", conditions, columns=COLUMNS)
    uvloop.run(run(report, num_tokens, num_turns, http=options.http, traces=options.traces))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
