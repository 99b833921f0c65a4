"""How soon speculation goes off when the load comes and on again when it goes (part c)."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from emulation.client import Client, emulated_config
from shared.asking import Arrival, connected
from shared.report import Report

from pilotfish.launch.local_stack import LocalStack

RATE = 0.5
"""Speculation wins alone (1.56x with K = 2 by the profile's costs, some 1.2x with what the services take beside them on
two cores) and loses among 64 (0.94x with K = 1)."""
CONCURRENCY = 64
ALONE_S, CROWDED_S = 5.0, 15.0
QUICK_ALONE_S, QUICK_CROWDED_S = 3.0, 5.0
WINDOW_S = 0.1
OFF_SHARE, ON_SHARE = 0.95, 0.5
"""Share of plain tokens in two windows in a row from which speculation counts as off, and up to which as on."""
ANSWER_TOKENS = 192
COLUMNS = {"step": "load", "wanted": "wanted", "after_s": "after s", "switches": "switches"}


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of what the controller does, as the client sees it."""

    time_s: float
    is_on: bool


def run_load_step(report: Report, *, quick: bool) -> None:
    """One row per step of the load."""
    alone_s, crowded_s = (QUICK_ALONE_S, QUICK_CROWDED_S) if quick else (ALONE_S, CROWDED_S)
    report.columns = COLUMNS
    arrivals, up_s, down_s = asyncio.run(_measure(alone_s, crowded_s))
    switches = find_switches(arrivals)
    before = [switch for switch in switches if switch.time_s < up_s]
    is_on = bool(before) and before[-1].is_on
    report.check("load step: on before the load comes", float(is_on), 1, "", "equal to")
    for name, start_s, end_s, wanted in (
        (f"1 -> {CONCURRENCY}", up_s, down_s, False),
        (f"{CONCURRENCY} -> 1", down_s, float("inf"), True),
    ):
        found = [switch for switch in switches if start_s <= switch.time_s < end_s]
        reached = next((switch for switch in found if switch.is_on is wanted), None)
        delay_s = None if reached is None else reached.time_s - start_s
        report.row(
            part="load-step",
            step=name,
            acceptance=RATE,
            wanted="on" if wanted else "off",
            after_s="never" if delay_s is None else delay_s,
            switches=len(found),
        )
        report.check(f"load step {name}: switches", len(found), 2, "switches")
        is_on = found[-1].is_on if found else is_on
        report.check(f"load step {name}: ends {'on' if wanted else 'off'}", float(is_on is wanted), 1, "", "equal to")


def find_switches(arrivals: Sequence[Arrival]) -> list[Switch]:
    """When the share of plain tokens changed sides. Speculation is off before the first window."""
    ordered = sorted(arrivals, key=lambda arrival: arrival.time_s)
    windows: dict[int, list[Arrival]] = {}
    for arrival in ordered:
        windows.setdefault(int((arrival.time_s - ordered[0].time_s) / WINDOW_S), []).append(arrival)
    shares = [
        (index, sum(a.num_plain for a in window) / sum(a.num_tokens for a in window))
        for index, window in sorted(windows.items())
    ]
    is_on, switches = False, []
    for (index, share), (_, next_share) in itertools.pairwise(shares):
        if (is_on and min(share, next_share) >= OFF_SHARE) or (not is_on and max(share, next_share) <= ON_SHARE):
            is_on = not is_on
            switches.append(Switch(ordered[0].time_s + index * WINDOW_S, is_on))
    return switches


async def _measure(alone_s: float, crowded_s: float) -> tuple[list[Arrival], float, float]:
    """Arrivals of all answers; when the load came and when it went, in perf_counter seconds."""
    arrivals: list[Arrival] = []

    async def ask_on(client: Client) -> None:
        while True:
            await client.ask("auto", ANSWER_TOKENS, on_arrival=arrivals.append)

    with LocalStack(emulated_config(RATE)) as stack:
        async with connected(stack.address) as stub:
            client = Client(stub)
            tasks = [asyncio.create_task(ask_on(client))]
            await asyncio.sleep(alone_s)
            up_s = time.perf_counter()
            tasks += [asyncio.create_task(ask_on(client)) for _ in range(CONCURRENCY - 1)]
            await asyncio.sleep(crowded_s)
            down_s = time.perf_counter()
            for task in tasks[1:]:
                task.cancel()
            await asyncio.sleep(alone_s)
            tasks[0].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [result for result in results if not isinstance(result, asyncio.CancelledError)]
    if failures:
        raise RuntimeError("requests failed under load") from next(f for f in failures if isinstance(f, BaseException))
    return arrivals, up_s, down_s
