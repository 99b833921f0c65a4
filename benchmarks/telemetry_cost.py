"""What do traces cost the orchestrator?

Its replicas compute nothing (`echo/core.py`), so that it has as much to do as it can take; on real models it has far
less. One orchestrator for each arm, with a collector that takes what it sends, measured in turns over the same
requests. The figure is the CPU time for a token, threads that export spans included: an orchestrator has one core's
worth of work, so that what a token costs more is the throughput that is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
from collections.abc import Sequence
from typing import Literal

import checkout  # noqa: F401  # finds tests.support
import psutil
import uvloop
from echo.replica import replica
from orchestrator_cost import isolate, measure, orchestrator
from report import Report, parser

from pilotfish.config import Config, TelemetryConfig
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder
from tests.support.otlp_collector import OtlpCollector

NUM_STREAMS = 64
ANSWER_TOKENS = 256
"""What a request gets that does not say (max_tokens)."""
NUM_WAVES = 4
FLUSH_S = 1.5
"""Spans are sent once a second."""
ASKED_LOSS = 0.02


ROUND_SPANS: dict[str, Literal["off", "sampled", "all"]] = {
    "rounds off": "off",
    "rounds sampled": "sampled",
    "rounds all": "all",
}
NO_TRACES = "no traces"
"""The arm that all others are held against."""


async def run(report: Report, num_turns: int) -> None:
    """All rows of the report."""
    tokenizer = str(emulated_tokenizer_folder(Config()))
    async with contextlib.AsyncExitStack() as stack:
        target = await stack.enter_async_context(replica("target", tokenizer=tokenizer))
        draft = await stack.enter_async_context(replica("draft", tokenizer=tokenizer))
        started: dict[str, tuple[str, psutil.Process]] = {}
        started[NO_TRACES] = await stack.enter_async_context(orchestrator(target, draft))
        for name, round_spans in ROUND_SPANS.items():
            collector = await stack.enter_async_context(OtlpCollector())
            config = TelemetryConfig(otlp_endpoint=collector.endpoint, round_spans=round_spans)
            started[name] = await stack.enter_async_context(orchestrator(target, draft, config))
        is_alone = isolate(*(process for _, process in started.values()))
        report.conditions["orchestrators"] = "on a core of their own" if is_alone else "share their core"
        for speculation in ("off", "on"):
            await _compare(report, started, speculation, num_turns)


async def _compare(
    report: Report,
    started: dict[str, tuple[str, psutil.Process]],
    speculation: str,
    num_turns: int,
) -> None:
    costs: dict[str, list[float]] = {name: [] for name in started}
    for turn in range(num_turns + 1):
        # Another order each time: what is measured next to what must not matter.
        names = list(started)[turn % len(started) :] + list(started)[: turn % len(started)]
        for name in names:
            address, process = started[name]
            cpu_us = await _cpu_us_per_token(address, process, speculation)
            if turn:  # the first warms up
                costs[name].append(cpu_us)
    base = costs[NO_TRACES]
    for name, values in costs.items():
        # The calmest turn of each: what else runs on the machine can only add to a CPU time.
        loss = 1 - min(base) / min(values)
        report.row(
            speculation=speculation,
            traces=name,
            least_cpu_us_per_token=min(values),
            median_cpu_us_per_token=statistics.median(values),
            lost_percent=100 * loss,
        )
        if name == "rounds off":
            report.check(f"throughput lost to traces, {name}, speculation {speculation}", loss, ASKED_LOSS, "of 1")


async def _cpu_us_per_token(address: str, process: psutil.Process, speculation: str) -> float:
    """Until the spans of the answers have been sent, too."""
    before, num_tokens = process.cpu_times(), 0
    for _ in range(NUM_WAVES):
        cost = await measure(address, process, NUM_STREAMS, ANSWER_TOKENS, speculation)
        num_tokens += cost.num_tokens
    await asyncio.sleep(FLUSH_S)
    after = process.cpu_times()
    return 1e6 * (after.user + after.system - before.user - before.system) / num_tokens


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_turns = 4 if options.quick else 16
    conditions = {
        "engines": "none, they answer at once",
        "streams": NUM_STREAMS,
        "answer tokens": ANSWER_TOKENS,
        "turns": num_turns,
        "sampling of traces": 1.0,
    }
    report = Report("What do traces cost the orchestrator?", conditions)
    uvloop.run(run(report, num_turns))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
