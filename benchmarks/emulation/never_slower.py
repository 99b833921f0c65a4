"""Auto against always off, always on and a deployment without drafters, over concurrency and acceptance (part b)."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from emulation.client import Client, Load, closed_loop, connected
from emulation.stack import another_orchestrator, emulated_config
from report import Report

from pilotfish.launch.local_stack import LocalStack

RATES = (0.3, 0.6, 0.9)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128)
ANSWER_TOKENS = (96, 160, 128)
WARM_UP_S, DURATION_S, NUM_TURNS = 1.5, 4.0, 1
QUICK_WARM_UP_S, QUICK_DURATION_S = 1.0, 2.0
OFF_SHARE = 0.9
"""Where so many of auto's tokens come without drafts, the controller has turned speculation off."""
ARMS = ("none", "off", "on", "auto")
"""none: a deployment without drafters."""


@dataclass(frozen=True, slots=True)
class Result:
    """One arm at one load: medians over the turns."""

    tokens_per_s: float
    inter_token_ms: float
    plain_share: float
    cpu_percent: float


def run_never_slower(report: Report, *, quick: bool) -> None:
    """A row per load, and the worst of them as checks."""
    throughput, latency, costs = [], [], []
    for rate in RATES[1:] if quick else RATES:
        for concurrency, results in asyncio.run(_measure(rate, (1, 16) if quick else CONCURRENCIES, quick)):
            auto, off, none = results["auto"], results["off"], results["none"]
            alternatives = (off, results["on"])
            throughput.append(auto.tokens_per_s / max(other.tokens_per_s for other in alternatives))
            latency.append(min(other.inter_token_ms for other in alternatives) / auto.inter_token_ms)
            is_off = auto.plain_share >= OFF_SHARE
            if is_off:
                costs.append(auto.tokens_per_s / none.tokens_per_s)
            report.row(
                part="never-slower",
                acceptance=rate,
                concurrency=concurrency,
                **{f"{name} tok/s": round(result.tokens_per_s) for name, result in results.items()},
                **{f"{name} itl_ms": result.inter_token_ms for name, result in results.items()},
                auto_over_best=throughput[-1],
                itl_over_best=latency[-1],
                off_over_none=costs[-1] if is_off else "",
                plain=auto.plain_share,
                cpu=max(result.cpu_percent for result in results.values()),
            )
    report.check(
        "never slower: auto over the better of off and on, tokens/s, worst load", min(throughput), 0.98, kind="at least"
    )
    report.check("never slower: the same of the median inter-token latency", min(latency), 0.98, kind="at least")
    if costs:
        report.check(
            "never slower: off by the controller over no draft pool, worst load", min(costs), 0.99, kind="at least"
        )


async def _measure(rate: float, concurrencies: Sequence[int], quick: bool) -> list[tuple[int, dict[str, Result]]]:
    with LocalStack(emulated_config(rate)) as stack, another_orchestrator(stack, draft_addresses=()) as without:
        async with connected(stack.address) as client, connected(without) as plain_client:
            results = []
            for concurrency in concurrencies:
                loads: dict[str, list[tuple[Load, float]]] = {arm: [] for arm in ARMS}
                for turn in range(1 if quick else NUM_TURNS):
                    for arm in ARMS if turn % 2 == 0 else reversed(ARMS):
                        asked = plain_client if arm == "none" else client
                        loads[arm].append(await _load(asked, arm, concurrency, quick))
                results.append((concurrency, {arm: _result(turns) for arm, turns in loads.items()}))
            return results


async def _load(client: Client, arm: str, concurrency: int, quick: bool) -> tuple[Load, float]:
    """What came, and the machine's use of its processors meanwhile."""
    psutil.cpu_percent()
    load = await closed_loop(
        client,
        "auto" if arm == "none" else arm,
        concurrency,
        warm_up_s=QUICK_WARM_UP_S if quick else WARM_UP_S,
        duration_s=QUICK_DURATION_S if quick else DURATION_S,
        answer_tokens=ANSWER_TOKENS,
    )
    return load, psutil.cpu_percent()


def _result(turns: Sequence[tuple[Load, float]]) -> Result:
    return Result(
        statistics.median(load.tokens_per_s for load, _ in turns),
        1e3 * statistics.median(statistics.median(load.gaps_s) for load, _ in turns),
        statistics.mean(load.plain_share for load, _ in turns),
        max(cpu_percent for _, cpu_percent in turns),
    )
