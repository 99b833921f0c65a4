"""How does the service hold up under load, with speculation off, on, and left to the controller?

The modes in turns over the same requests: an emulated 70B on A100s at 1 to 64 requests in flight, with prompts and
answers as long as in chat traffic and one or several `--acceptance`, or with `--real` the default models on this
machine, with one `--drafter` after another, and every one of the `--prompts` in each turn; `--levels` says how many in
flight, `--turns` how often. 1,000 streams at once are orchestrator_cost.py's.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from rich.console import Console
from shared.report import Report, dataset_name, parser

from orchestrator.control.reasons import Reason
from pilotfish.bench.load.point import LoadPoint, LoadResult
from pilotfish.bench.load.suite import MODES, LoadSettings, run_load
from pilotfish.bench.load.tables import show
from pilotfish.bench.load.workload import parse_lengths
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.proposers import Proposer, parse_proposers
from pilotfish.bench.suite import STACK_DEFAULTS, Station
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import Config, load_config

PROFILE = "a100-70b"
MEAN, WORST = 0.985, 0.95
"""Shares of the better of `off` and `on` that `auto` is to reach."""
REAL_MEAN = 0.97
"""The same on a machine whose speed varies: as a mean of turns, of each drafter at each load."""
TIMEOUT_S = 600.0


class Run(NamedTuple):
    """What is started, what it is asked, and what tells its rows from those of other runs."""

    labels: dict[str, str | float]
    config: Config
    settings: LoadSettings


def emulated(options: argparse.Namespace, acceptance: float) -> Run:
    """The run of one `--acceptance`."""
    settings = LoadSettings(
        concurrencies=_levels(options, (1, 4, 16, 64)),
        modes=MODES,
        options=GenerateOptions(temperature=0, ignore_eos=True, num_speculative_tokens=options.k),
        prompt_lengths=parse_lengths("lognormal:256,0.6,1024"),
        output_lengths=parse_lengths("lognormal:128,0.4,256"),
        num_requests=8 if options.quick else None,
        num_turns=1 if options.quick else options.turns,
        timeout_s=TIMEOUT_S,
    )
    emulation = f"emulation.profile={PROFILE}", f"emulation.acceptance={acceptance}"
    return Run({"acceptance": acceptance}, load_config(overrides=[*STACK_DEFAULTS, *emulation]), settings)


def real(options: argparse.Namespace, drafter: Proposer) -> Run:
    """Answers that end where they end."""
    per_category, levels = 1 if options.quick else options.prompts, _levels(options, (1, 4, 8))
    prompts = [prompt.text for prompt in load_prompts(options.dataset, per_category=per_category)]
    settings = LoadSettings(
        concurrencies=levels,
        modes=MODES,
        options=GenerateOptions(temperature=0, proposer=drafter.request_name),
        prompts=prompts,
        output_lengths=parse_lengths("24" if options.quick else "128"),
        num_requests=4 if options.quick else max(len(prompts), 2 * max(levels)),
        num_turns=1 if options.quick else options.turns,
        timeout_s=TIMEOUT_S,
    )
    return Run({"drafter": drafter.name}, load_config(overrides=[*STACK_DEFAULTS, *drafter.overrides]), settings)


def _levels(options: argparse.Namespace, default: tuple[int, ...]) -> tuple[int, ...]:
    if options.levels:
        return tuple(int(level) for level in options.levels.split(","))
    return default[:2] if options.quick else default


def add_real_checks(report: Report, runs: Sequence[Run], results: Sequence[LoadResult]) -> None:
    """`auto` against the better of the two others, of each drafter at each load; one request is no flood."""
    for run, result in zip(runs, results, strict=True):
        for off, on, auto in _loads(result):
            ratios = _ratios(off, on, auto)
            name = f"{run.labels['drafter']}, {auto.concurrency} in flight: auto over the better of off and on"
            report.check(f"{name}, mean of turns", statistics.fmean(ratios), REAL_MEAN, kind="at least")
    alone = [point for result in results for point in result.points if point.concurrency == 1]
    num_saturated = sum(point.reasons.get(Reason.DRAFT_POOL_SATURATED, 0) for point in alone)
    report.check("requests alone that found the draft pool saturated", num_saturated, 0, "", "equal to")


def _ratios(off: LoadPoint, on: LoadPoint, auto: LoadPoint) -> list[float]:
    """Turn by turn: `auto` over the mode that is better over all turns, so that none is chosen for its luck."""
    turns = max(off, on, key=_speed).output_tokens_per_s_by_turn
    return [ours / theirs for ours, theirs in zip(auto.output_tokens_per_s_by_turn, turns, strict=True)]


def _over_better(off: LoadPoint, on: LoadPoint, auto: LoadPoint) -> dict[str, float | None]:
    """Ratios of a row of `auto` over the better of the others."""
    ratios = _ratios(off, on, auto)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else None
    return {"over_better": statistics.fmean(ratios), "over_better_standard_error": error}


def add_checks(report: Report, results: Sequence[LoadResult]) -> None:
    """Nothing failed, and nothing differs."""
    points = [point for result in results for point in result.points]
    report.check("failed requests", sum(point.num_failed for point in points), 0, "", "equal to")
    if any(point.num_compared for point in points):
        differing = sum(point.num_differing for point in points)
        report.check("answers that differ from plain decoding's", differing, 0, "", "equal to")


def add_emulated_checks(report: Report, results: Sequence[LoadResult]) -> None:
    """`auto` against the better of the two others, over all loads."""
    loads = [load for result in results for load in _loads(result)]
    for what, ratios in (
        ("tokens/s", [_speed(load[2]) / max(map(_speed, load[:2])) for load in loads]),
        ("time per token", [min(map(_time_per_token_ms, load[:2])) / _time_per_token_ms(load[2]) for load in loads]),
    ):
        name = f"auto over the better of off and on, {what}, of {len(loads)} loads"
        report.check(f"{name}: mean", statistics.fmean(ratios), MEAN, kind="at least")
        report.check(f"{name}: worst", min(ratios), WORST, kind="at least")


def _loads(result: LoadResult) -> list[list[LoadPoint]]:
    """The points of each load, in the order of MODES."""
    by_load = {(point.concurrency, point.mode): point for point in result.points}
    return [
        [by_load[level, mode] for mode in MODES]
        for level in dict.fromkeys(point.concurrency for point in result.points)
    ]


def _speed(point: LoadPoint) -> float:
    return point.output_tokens_per_s


def _time_per_token_ms(point: LoadPoint) -> float:
    """Median over requests: gaps between arrivals do not compare, since a round's tokens come in one."""
    return point.tpot_ms.p50 if point.tpot_ms else float("inf")


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--real", action="store_true", help="the default models instead of emulated ones")
    options_parser.add_argument(
        "--acceptance", type=float, nargs="+", default=[0.8], help="of emulated draft tokens (default 0.8)"
    )
    options_parser.add_argument("--turns", type=int, default=5, help="runs of each mode at each load (default 5)")
    options_parser.add_argument("-k", type=int, help="draft tokens of an emulated round (default: the server's)")
    options_parser.add_argument("--levels", metavar="N,...", help="requests in flight")
    options_parser.add_argument(
        "--drafter", nargs="+", default=["auto"], metavar="NAME[=FOLDER]", help="with --real (default: auto)"
    )
    options_parser.add_argument("--prompts", type=int, help="with --real: of each category (default: all)")
    options = options_parser.parse_args(arguments)
    if options.real:
        runs = [real(options, drafter) for drafter in parse_proposers(options.drafter)]
    else:
        runs = [emulated(options, acceptance) for acceptance in options.acceptance]
    results = []
    for run in runs:
        with BenchProgress(Console(stderr=True)) as progress:
            results.append(run_load(Station(proposers=(), config=run.config), run.settings, progress))
        Console().print(", ".join(f"{name} {value}" for name, value in run.labels.items()), style="bold")
        show(results[-1], Console())
        for load in _loads(results[-1]):
            figures = ", ".join(
                f"{name} {value:.3f}" for name, value in _over_better(*load).items() if value is not None
            )
            Console().print(f"{load[-1].concurrency} in flight, auto: {figures}")
    conditions = {
        **{key: value for key, value in results[0].conditions.items() if not (options.real and key == "proposer")},
        "prompts from": dataset_name(options) if options.real else "synthetic",
    }
    rows = [
        msgspec.to_builtins(point) | run.labels | over_better
        for run, result in zip(runs, results, strict=True)
        for load in _loads(result)
        for point, over_better in zip(load, ({}, {}, _over_better(*load)), strict=True)
    ]
    report = Report(
        "How does the service hold up under load, with speculation off, on, and left to the controller?",
        conditions,
        rows=rows,
    )
    add_checks(report, results)
    if options.real:
        add_real_checks(report, runs, results)
    else:
        add_emulated_checks(report, results)
    report.finish(options, has_shown_rows=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
