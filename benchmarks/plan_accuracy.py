"""Does `pilotfish plan` foretell what the stack does?

A closed loop of requests goes through the emulated stack, where everything but the engines' arithmetic is real, and
through the planner's simulation, with speculation off, on and by the controller. The one figure that the simulation
does not know, the round trip between orchestrator and engines, is measured first, on one sequence with one draft token
a round and none ahead, which no row of the table has. Twice: as fast as the profile says, and on hardware that is
slower in everything, where what this machine's processors do between the steps weighs as many times less.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Iterator, Sequence

import psutil
from emulation.client import Client, Load, Span, closed_loop, connected
from emulation.stack import PROFILE, emulated_config
from report import Report, parser

from pilotfish.config import Config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN, Drafting
from pilotfish.planning.fleet import FleetSimulation
from pilotfish.planning.planner import HANDLING_S
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import Request
from pilotfish.profiles import HardwareProfile, ScaledCost, load_profile

ACCEPTANCE = 0.8
NUM_DRAFT_TOKENS = 5
CONCURRENCIES = (1, 4, 16, 64)
MODES = ("off", "on", "auto")
PROMPT_TOKENS = 5
ANSWER_TOKENS = (192, 320, 256)
WARM_UP_S, DURATION_S = 3.0, 8.0
ALONE_S = 30.0
"""Of one sequence alone: how many drafts are accepted is luck, which so many rounds even out to within 2 %."""
QUICK_WARM_UP_S, QUICK_DURATION_S = 1.0, 2.0
SLOW_SCALE = 5.0
"""`emulation.time_scale` of the slower hardware,"""
SLOW_WARM_UP_S, SLOW_DURATION_S, SLOW_ALONE_S = 12.0, 16.0, 60.0
"""which is given more time, if not as many rounds."""
MAX_ERROR = 0.10
BUSY_PERCENT = 90.0
"""Above it the emulation itself is late: what is measured then is this machine."""


def stack_config(time_scale: float, *, ahead: bool) -> Config:
    config = emulated_config(ACCEPTANCE, time_scale=time_scale)
    speculation = dataclasses.replace(
        config.orchestrator.speculation,
        num_speculative_tokens=NUM_DRAFT_TOKENS,
        draft_ahead="on" if ahead else "off",
    )
    return dataclasses.replace(config, orchestrator=dataclasses.replace(config.orchestrator, speculation=speculation))


def slower(profile: HardwareProfile, factor: float) -> HardwareProfile:
    """The profile as `emulation.time_scale` makes it."""
    target, draft = ScaledCost(profile.target, factor), ScaledCost(profile.draft, factor)
    return dataclasses.replace(profile, target=target, draft=draft)


async def measure_round_trip_s(client: Client, profile: HardwareProfile, num_answers: int) -> float:
    """Between the orchestrator and an engine, with all that is done on the way."""
    span = Span()
    for _ in range(num_answers):
        span += (await client.ask("on", ANSWER_TOKENS[0], num_speculative_tokens=1)).span(num_left_out=4)
    round_s = span.elapsed_s / span.num_rounds
    engines_s = DecodingModel(profile, Drafting(), context_tokens=_context_tokens()).round_s(1, 1)
    return max(0.0, (round_s - engines_s) / 2 - HANDLING_S)


def simulate(profile: HardwareProfile, drafting: Drafting, concurrency: int, round_trip_s: float) -> float:
    """Tokens per second of the same closed loop."""
    model = DecodingModel(
        profile, drafting, context_tokens=_context_tokens(), round_trip_s=round_trip_s, handling_s=HANDLING_S
    )
    simulation = FleetSimulation(ReplicaRates(model), 1, round_trip_s=round_trip_s, warm_up=5 * concurrency)
    return simulation.run_closed(_requests(100 * concurrency), concurrency).tokens_per_s


def drafting_of(mode: str, ahead_tokens: int) -> Drafting:
    if mode == "off":
        return PLAIN
    return Drafting(
        acceptance=(ACCEPTANCE,),
        max_draft_tokens=NUM_DRAFT_TOKENS,
        fixed_draft_tokens=NUM_DRAFT_TOKENS if mode == "on" else None,
        ahead_tokens=ahead_tokens,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument(
        "--time-scales", nargs="+", type=float, default=[1.0, SLOW_SCALE], help="of the hardware; --quick: 1 only"
    )
    options = options_parser.parse_args(arguments)
    report = Report(
        "Does the planner foretell what the emulated stack does?",
        {
            "profile": PROFILE,
            "acceptance": ACCEPTANCE,
            "draft tokens at most": NUM_DRAFT_TOKENS,
            "prompt tokens": PROMPT_TOKENS,
            "answer tokens": list(ANSWER_TOKENS),
        },
    )
    for time_scale in (1.0,) if options.quick else options.time_scales:
        round_trip_s = asyncio.run(_compare(report, time_scale, quick=options.quick))
        asyncio.run(_compare(report, time_scale, round_trip_s, quick=options.quick))
        for mode in MODES:
            rows = [row for row in report.rows if row["mode"] == mode and row["time_scale"] == time_scale]
            spare = [row for row in rows if row["cpu_percent"] < BUSY_PERCENT]
            name = f"simulated over measured tokens/s, x{time_scale:g}, speculation {mode}: largest error"
            report.check(name, _largest_error(rows), MAX_ERROR, unit="")
            if spare:
                report.check(f"{name} where processors had time to spare", _largest_error(spare), MAX_ERROR, unit="")
    report.finish(options)
    return 0


async def _compare(report: Report, time_scale: float, round_trip_s: float | None = None, *, quick: bool) -> float:
    """Returns the round trip, measured where none is given: then nothing is drafted ahead, which would hide it."""
    ahead = round_trip_s is not None
    profile, config = slower(load_profile(PROFILE), time_scale), stack_config(time_scale, ahead=ahead)
    ahead_tokens = config.orchestrator.speculation.draft_ahead_tokens if ahead else 0
    with LocalStack(config) as stack:
        async with connected(stack.address) as client:
            if round_trip_s is None:
                round_trip_s = await measure_round_trip_s(client, profile, 2 if quick else 6)
                report.conditions[f"round trip ms, x{time_scale:g}"] = round(1e3 * round_trip_s, 3)
            for concurrency in CONCURRENCIES:
                for mode in MODES[1:] if ahead else MODES:
                    load, cpu_percent = await _load(client, mode, concurrency, time_scale, quick=quick)
                    simulated = simulate(profile, drafting_of(mode, ahead_tokens), concurrency, round_trip_s)
                    report.row(
                        time_scale=time_scale,
                        concurrency=concurrency,
                        mode=mode,
                        ahead="yes" if ahead else "no",
                        measured_tokens_per_s=load.tokens_per_s,
                        simulated_tokens_per_s=simulated,
                        ratio=simulated / load.tokens_per_s,
                        plain_share=load.plain_share,
                        cpu_percent=cpu_percent,
                    )
    return round_trip_s


async def _load(client: Client, mode: str, concurrency: int, time_scale: float, *, quick: bool) -> tuple[Load, float]:
    warm_up_s, duration_s, alone_s = WARM_UP_S, DURATION_S, ALONE_S
    if time_scale > 1:
        warm_up_s, duration_s, alone_s = SLOW_WARM_UP_S, SLOW_DURATION_S, SLOW_ALONE_S
    if quick:
        warm_up_s, duration_s, alone_s = QUICK_WARM_UP_S, QUICK_DURATION_S, QUICK_DURATION_S
    psutil.cpu_percent()
    load = await closed_loop(
        client,
        mode,
        concurrency,
        warm_up_s=warm_up_s,
        duration_s=alone_s if concurrency == 1 else duration_s,
        answer_tokens=ANSWER_TOKENS,
    )
    return load, psutil.cpu_percent()


def _largest_error(rows: Sequence[dict[str, float]]) -> float:
    return max(abs(row["ratio"] - 1) for row in rows)


def _requests(number: int) -> Iterator[Request]:
    for index in range(number):
        yield Request(0.0, PROMPT_TOKENS, ANSWER_TOKENS[index % len(ANSWER_TOKENS)])


def _context_tokens() -> float:
    return PROMPT_TOKENS + sum(ANSWER_TOKENS) / len(ANSWER_TOKENS) / 2


if __name__ == "__main__":
    sys.exit(main())
