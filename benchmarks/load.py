"""How does the service hold up under load, with speculation off, on, and left to the controller?

Emulated 70B on A100s (the default): closed loop at 1 to 64 requests in flight and a Poisson sweep with goodput, the
modes in turns; `--only` runs one of them. `--real`: the default models on this machine, at `--levels` and with the
`--drafter` of one's choice. Reported latencies count from when a request was due. 1,000 streams at once are
orchestrator_cost.py's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from report import Report, parser
from rich.console import Console

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.bench.load.level import Level, parse_levels
from pilotfish.bench.load.point import LoadPoint
from pilotfish.bench.load.result import LoadResult
from pilotfish.bench.load.settings import MODES, LoadSettings
from pilotfish.bench.load.slo import parse_slo
from pilotfish.bench.load.suite import run_load
from pilotfish.bench.load.tables import show
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.proposers import parse_proposers
from pilotfish.bench.suite import STACK_DEFAULTS, Progress, Station
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import load_config

PARTS = ("closed", "open")
PROFILE = "a100-70b"
NEVER_SLOWER = 0.98
"""Of the better of `off` and `on`, asked of `auto`."""
TIMEOUT_S = 600.0


def add_rows(report: Report, part: str, result: LoadResult) -> None:
    """A line for each load and mode."""
    for point in result.points:
        drafts = point.drafts
        report.row(
            part=part,
            load=point.load,
            mode=point.mode,
            offered_rps=point.offered_rps if point.offered_rps is not None else "",
            done_rps=point.achieved_rps,
            goodput_rps=point.goodput_rps if point.goodput_rps is not None else "",
            tokens_per_s=point.output_tokens_per_s,
            over_off=point.throughput_ratio if point.throughput_ratio is not None else "",
            ttft_p50_ms=point.ttft_ms.p50 if point.ttft_ms else "",
            ttft_p99_ms=point.ttft_ms.p99 if point.ttft_ms else "",
            itl_p50_ms=point.itl_ms.p50 if point.itl_ms else "",
            itl_p99_ms=point.itl_ms.p99 if point.itl_ms else "",
            e2e_p50_ms=point.e2e_ms.p50 if point.e2e_ms else "",
            e2e_p99_ms=point.e2e_ms.p99 if point.e2e_ms else "",
            accepted_length=drafts.mean_acceptance_length if drafts and drafts.mean_acceptance_length else "",
            failed=point.num_failed,
            differ=f"{point.num_differing}/{point.num_compared}",
            client_cpu=point.client.cpu_share,
        )
    Console().rule(part)
    show(result, Console())


def check_common(report: Report, part: str, result: LoadResult) -> None:
    """Nothing failed, nothing differs."""
    report.check(f"{part}: failed requests", sum(point.num_failed for point in result.points), 0, "", "equal to")
    if any(point.num_compared for point in result.points):
        differing = sum(point.num_differing for point in result.points)
        report.check(f"{part}: answers that differ from plain decoding's", differing, 0, "", "equal to")


def check_never_slower(report: Report, part: str, result: LoadResult) -> None:
    """`auto` against the better of the two others, load by load."""
    for load in dict.fromkeys(point.load for point in result.points):
        points = {point.mode: point for point in result.points if point.load == load}
        off, on, auto = (points[mode] for mode in MODES)
        best = max(off.output_tokens_per_s, on.output_tokens_per_s)
        name = f"{part}, {load}: auto over the better of off and on"
        report.check(f"{name}, tokens/s", auto.output_tokens_per_s / best, NEVER_SLOWER, kind="at least")
        per_token = _time_per_token_ms(off), _time_per_token_ms(on)
        report.check(
            f"{name}, time per token", min(per_token) / _time_per_token_ms(auto), NEVER_SLOWER, kind="at least"
        )


def check_goodput(report: Report, result: LoadResult) -> None:
    """In the open loop tokens per second are what was offered; what counts is how many are good."""
    for load in dict.fromkeys(point.load for point in result.points):
        goodput = {point.mode: point.goodput_rps or 0.0 for point in result.points if point.load == load}
        best = max(goodput["off"], goodput["on"])
        if best:
            name = f"open, {load}: goodput of auto over the better of off and on"
            report.check(name, goodput["auto"] / best, NEVER_SLOWER, kind="at least")


def _time_per_token_ms(point: LoadPoint) -> float:
    """Median over requests: gaps between arrivals do not compare, since a round's tokens come in one."""
    return point.tpot_ms.p50 if point.tpot_ms else float("inf")


def emulated(report: Report, options: argparse.Namespace, progress: Progress) -> None:
    """The closed loop and the Poisson sweep over the emulated profile."""
    config = load_config(overrides=[*STACK_DEFAULTS, f"emulation.profile={PROFILE}"])
    parts: dict[str, list[Level]] = {
        "closed": parse_levels("concurrency", "1,16" if options.quick else "1,4,16,64"),
        "open": parse_levels("rate", "8" if options.quick else "4,8,16,20"),
    }
    for part, levels in parts.items():
        if part not in options.only:
            continue
        settings = LoadSettings(
            levels=tuple(levels),
            modes=MODES,
            options=GenerateOptions(temperature=0, ignore_eos=True),
            prompt_lengths=parse_lengths("lognormal:256,0.6,1024"),
            output_lengths=parse_lengths("lognormal:128,0.4,256"),
            num_requests=8 if options.quick else None,
            num_turns=5 if part == "closed" and not options.quick else 1,
            slo=parse_slo(["ttft:500", "tpot:20"]),
            timeout_s=TIMEOUT_S,
        )
        result = run_load(Station(proposers=(), config=config), settings, progress).result
        add_rows(report, part, result)
        check_common(report, part, result)
        if part == "closed":
            check_never_slower(report, part, result)
        else:
            check_goodput(report, result)


def real(report: Report, options: argparse.Namespace, progress: Progress) -> None:
    """The default models, answers that end where they end."""
    (drafter,) = parse_proposers([options.drafter])
    config = load_config(overrides=[*STACK_DEFAULTS, *drafter.overrides])
    settings = LoadSettings(
        levels=tuple(parse_levels("concurrency", options.levels or ("1,4" if options.quick else "1,4,16"))),
        modes=MODES,
        options=GenerateOptions(temperature=0, proposer=drafter.request_name),
        prompts=[prompt.text for prompt in load_prompts(options.dataset, per_category=1 if options.quick else None)],
        output_lengths=parse_lengths("24" if options.quick else "128"),
        num_requests=4 if options.quick else None,
        num_turns=1 if options.quick else 4,
        timeout_s=TIMEOUT_S,
    )
    result = run_load(Station(proposers=(), config=config), settings, progress).result
    add_rows(report, "real", result)
    check_common(report, "real", result)
    check_never_slower(report, "real", result)


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--real", action="store_true", help="the default models instead of emulated ones")
    options_parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts of the emulated run")
    options_parser.add_argument("--levels", help="requests in flight with --real (default 1,4,16, quick 1,4)")
    options_parser.add_argument(
        "--drafter", default="draft", metavar="NAME[=FOLDER]", help="with --real (default: draft)"
    )
    options = options_parser.parse_args(arguments)
    if not options.real and (options.levels or options.drafter != "draft"):
        options_parser.error("--levels and --drafter go with --real")
    dataset: Path | None = options.dataset
    report = Report(
        "How does the service hold up under load, with speculation off, on, and left to the controller?",
        {
            "engines": "real, default models" if options.real else f"EMULATED: {PROFILE}",
            "prompts": str(dataset or "our own set") if options.real else "synthetic, lognormal, median 256 tokens",
            "drafter": options.drafter if options.real else "emulated",
            "sampling": "greedy",
            "client": "one process on the same machine",
        },
    )
    with BenchProgress(Console(stderr=True)) as progress:
        if options.real:
            real(report, options, progress)
        else:
            emulated(report, options, progress)
    # The tables of the parts are on the terminal already.
    report.finish(options, has_shown_rows=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
