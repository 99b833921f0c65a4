"""Auto against always off, always on and a deployment without drafters, over concurrency and acceptance (part b).

Latency is the time per output token of an answer (what vLLM and SGLang call TPOT), median over answers: what somebody
who reads an answer waits for. Gaps between tokens mislead: accepted tokens arrive together.

A turn of an arm scatters by several per cent where the processors are busy. So each load has turns until its ratio's
standard error is small, as far as that can be had: where the ratio is below the bound by more than three of them,
`auto` is slower; the others below it may be. Where off and on are alike, whichever had more luck counts as the better.
"""

from __future__ import annotations

import asyncio
import functools
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil
from emulation.client import Client, Load, closed_loop, connected
from emulation.stack import another_orchestrator, emulated_config
from shared.report import Report

from pilotfish.launch.local_stack import LocalStack

RATES = (0.3, 0.6, 0.9)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128)
ANSWER_TOKENS = (96, 160, 128)
TURNS, SLOW_TURNS, QUICK_TURNS = (5, 15), (3, 3), (1, 1)
"""Of each arm at each load, at least and at most, one after another: the machine's slow spells hit all alike."""
BOUND, OFF_BOUND = 0.98, 0.99
"""Of auto over the better of off and on, and over a deployment without drafters where the controller is off."""
STANDARD_ERROR, OFF_STANDARD_ERROR = 0.01, 0.003
"""Of these ratios, which end the turns of a load."""
REQUESTS_PER_TURN = 10_000
"""At most: each turn asks for other requests than those before it, the same of all arms."""
WARM_UP_S = 1.0
DURATION_S = 2.5
"""Of a turn;"""
ALONE_S = 4.0
"""with up to so few sequences as FEW: what is accepted in so few rounds is luck."""
FEW = 4
QUICK_DURATION_S = 2.0
SLOW_LOADS = {0.3: (64,), 0.6: (4, 8), 0.9: (2, 16, 32)}
"""On slow hardware: those that are the nearest to a loss at full speed."""
SLOW_DURATION_S = 10.0
OFF_SHARE = 0.9
"""Where so many of auto's tokens come without drafts, the controller has turned speculation off."""
ARMS = ("none", "off", "on", "auto")
"""none: a deployment without drafters, which only has more than one turn where auto turns speculation off."""
COLUMNS = {
    "acceptance": "a",
    "concurrency": "at once",
    **{f"{arm} tok/s": f"{arm} tok/s" for arm in ARMS},
    "auto_over_best": "auto/ best",
    "standard_error": "+-",
    "turns": "turns",
    "off token_ms": "off ms",
    "on token_ms": "on ms",
    "auto token_ms": "auto ms",
    "latency_over_best": "auto/ best",
    "off_over_none": "off/ none",
}
"""Of the table; off/none: where the controller is off, over a deployment without drafters."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one arm at one load."""

    load: Load
    cpu_percent: float
    """The machine's use of its processors meanwhile."""


@dataclass(frozen=True, slots=True)
class Result:
    """One arm at one load, all turns together."""

    tokens_per_s: float
    token_ms: float
    """Median over answers of their time per output token."""
    plain_share: float
    cpu_percent: float


def run_never_slower(
    report: Report, *, quick: bool, loads: Mapping[float, Sequence[int]] | None = None, time_scale: float = 1.0
) -> None:
    """A row per load, and the worst of them as checks.

    loads: concurrencies by acceptance, instead of all. time_scale: how slow the hardware is, in everything.
    """
    rates, concurrencies = (RATES[1:], (1, 16)) if quick else (RATES, CONCURRENCIES)
    slow_loads: dict[float, tuple[int, ...]] = {0.9: (2,)} if quick else SLOW_LOADS
    loads = loads or (slow_loads if time_scale > 1 else dict.fromkeys(rates, concurrencies))
    throughput, errors, latency, costs = [], [], [], []
    report.columns = COLUMNS
    for rate, concurrencies in loads.items():
        for concurrency, turns in asyncio.run(_measure(rate, concurrencies, quick, time_scale)):
            results = {arm: _result(own) for arm, own in turns.items()}
            auto, off, none = results["auto"], results["off"], results["none"]
            alternatives = (off, results["on"])
            throughput.append(auto.tokens_per_s / max(other.tokens_per_s for other in alternatives))
            ratios = _turn_ratios(turns)
            errors.append(_standard_error(ratios))
            latency.append(min(other.token_ms for other in alternatives) / auto.token_ms)
            is_off = auto.plain_share >= OFF_SHARE and len(turns["none"]) == len(ratios)
            if is_off:
                costs.append(auto.tokens_per_s / none.tokens_per_s)
            report.row(
                part="never-slower",
                time_scale=time_scale,
                acceptance=rate,
                concurrency=concurrency,
                **{f"{name} tok/s": round(result.tokens_per_s) for name, result in results.items()},
                **{f"{name} token_ms": result.token_ms for name, result in results.items()},
                auto_over_best=throughput[-1],
                auto_over_best_by_turn=[round(ratio, 3) for ratio in ratios],
                standard_error=errors[-1] if len(ratios) > 1 else "",
                turns=len(ratios),
                latency_over_best=latency[-1],
                off_over_none=costs[-1] if is_off else "",
                off_over_none_error=_off_error(turns) if is_off and len(ratios) > 1 else "",
                plain=auto.plain_share,
                cpu=max(result.cpu_percent for result in results.values()),
            )
    name = f"never slower, x{time_scale:g}: auto over the better of off and on"
    report.check(f"{name}, tokens/s, worst load", min(throughput), BOUND, kind="at least")
    report.check(f"{name}, time per output token, median over answers", min(latency), BOUND, kind="at least")
    for kind, values in (("tokens/s", throughput), ("time per output token", latency)):
        held = sum(value >= BOUND for value in values)
        report.conditions[f"loads at {BOUND} or above, x{time_scale:g}, {kind}"] = f"{held} of {len(values)}"
    if not quick:
        below = sum(value + 3 * error < BOUND for value, error in zip(throughput, errors, strict=True))
        name = f"never slower, x{time_scale:g}: loads below {BOUND} by more than three standard errors, tokens/s"
        report.check(name, below, 0, "", "equal to")
    if costs:
        name = f"never slower, x{time_scale:g}: off by the controller over no draft pool, worst load"
        report.check(name, min(costs), OFF_BOUND, kind="at least")


async def _measure(
    rate: float, concurrencies: Sequence[int], quick: bool, time_scale: float
) -> list[tuple[int, dict[str, list[Turn]]]]:
    with (
        LocalStack(emulated_config(rate, time_scale=time_scale)) as stack,
        another_orchestrator(stack, draft_addresses=()) as without,
    ):
        async with connected(stack.address) as client, connected(without) as plain_client:
            arms = {arm: plain_client if arm == "none" else client for arm in ARMS}
            return [
                (concurrency, await _take_turns(arms, concurrency, quick, time_scale)) for concurrency in concurrencies
            ]


async def _take_turns(
    arms: Mapping[str, Client], concurrency: int, quick: bool, time_scale: float
) -> dict[str, list[Turn]]:
    """The turns of each arm, as many as it needs; where auto speculates, only one without drafters, which says nothing
    of it."""
    turns: dict[str, list[Turn]] = {arm: [] for arm in arms}
    order = ARMS
    least, most = QUICK_TURNS if quick else SLOW_TURNS if time_scale > 1 else TURNS
    for number in range(most):
        if number >= least and _are_enough(turns):
            break
        first = number % len(order)
        for arm in (*order[first:], *order[:first]):
            psutil.cpu_percent()
            load = await _load(arms[arm], arm, concurrency, number, quick, time_scale)
            turns[arm].append(Turn(load, psutil.cpu_percent()))
        if turns["auto"][-1].load.plain_share < OFF_SHARE / 2:
            order = ARMS[1:]
    return turns


async def _load(client: Client, arm: str, concurrency: int, turn: int, quick: bool, time_scale: float) -> Load:
    duration_s = DURATION_S if concurrency > FEW or arm in ("none", "off") else ALONE_S
    if quick:
        duration_s = QUICK_DURATION_S
    if time_scale > 1:
        duration_s = 8.0 if quick else SLOW_DURATION_S
    return await closed_loop(
        client,
        "auto" if arm == "none" else arm,
        concurrency,
        warm_up_s=time_scale * WARM_UP_S,
        duration_s=duration_s,
        answer_tokens=ANSWER_TOKENS,
        first_number=1 + turn * REQUESTS_PER_TURN,
    )


def _result(turns: Sequence[Turn]) -> Result:
    load = functools.reduce(operator.add, (turn.load for turn in turns))
    return Result(
        load.tokens_per_s,
        1e3 * statistics.median(load.token_times_s),
        load.plain_share,
        statistics.fmean(turn.cpu_percent for turn in turns),
    )


def _turn_ratios(turns: Mapping[str, Sequence[Turn]], others: Sequence[str] = ("off", "on")) -> list[float]:
    """auto's tokens/s over those of the others, whichever is better over all turns, turn by turn."""
    speeds = {arm: [turn.load.tokens_per_s for turn in own] for arm, own in turns.items()}
    best = max((speeds[other] for other in others), key=sum)
    return [auto / other for auto, other in zip(speeds["auto"], best, strict=True)]


def _are_enough(turns: Mapping[str, Sequence[Turn]]) -> bool:
    """Whether more turns would tell nothing new."""
    if _standard_error(_turn_ratios(turns)) > STANDARD_ERROR:
        return False
    is_off = len(turns["none"]) == len(turns["auto"])
    return not is_off or _off_error(turns) <= OFF_STANDARD_ERROR


def _off_error(turns: Mapping[str, Sequence[Turn]]) -> float:
    """Standard error of auto over a deployment without drafters."""
    return _standard_error(_turn_ratios(turns, ("none",)))


def _standard_error(ratios: Sequence[float]) -> float:
    """Of their mean; of one it is not known."""
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
