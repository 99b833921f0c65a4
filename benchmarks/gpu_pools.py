"""What is a draft model in the draft service worth on a GPU, drafting ahead or not, and a head in the target?

A target of Llama-3.1-8B's shape and a draft model of Llama-3.2-1B's, with random weights, on one device: real services,
engine processes and orchestrators. How often they agree is planted (shared/planted.py), so that acceptance is known.

plain  decoding without drafts
pool   drafts of the draft service, each asked for after a verdict
ahead  the same, drafting ahead: both engines compute on the device at once
auto   the same, where that is measured to be faster (only if --arms names it)
head   an EAGLE-3 head in the target, whose drafts are planted as well; it stops where another token does not pay

Beside what is measured stands what `pilotfish plan` computes from the steps of both engines, each timed alone here, and
no network: (1 - a^(K+1)) / (1 - a) tokens in K draft steps and a verification; with `ahead` as many of the draft steps
are hidden as fit. `in turns`: none is hidden, since the engines take turns on the device. The head's formula is a round
of the target's engine alone. The target has the head in all rows; what that costs plain decoding, a run without it
shows (`--arms plain pool ahead`).

`--device cpu --shape tiny` shows that it runs; its times mean nothing. `gpu_wheels.sh` collects what a bare machine
lacks.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from shared.planted_requests import measure
from shared.planted_stack import PAIRS, Front, PlantedStack, front, show_line, stack_config, write_models
from shared.pool_formulas import Formulas
from shared.report import Report, parser

from pilotfish.errors import UnavailableError

ARMS = ("plain", "pool", "ahead", "head", "auto")
PROPOSERS = {"plain": "", "head": "eagle3"}
"""Proposers that requests name; for the other arms the draft service drafts."""
DRAFT_AHEAD = {"ahead": "on", "auto": "auto"}
LOADS = (1, 4, 16)
REST_S = 15.0
"""Part of the time limit that is left for the end."""
COLUMNS = {
    "requests": "req.",
    "arm": "arm",
    "K": "K",
    "tokens_per_s": "tok/s",
    "speed_up": "speed-up",
    "formula_speed_up": "formula",
    "ratio": "ratio",
    "in_turns": "turns",
    "round_ms": "ms",
    "tokens_per_round": "tokens",
    "hit_rate": "hits",
    "late_hit_share": "late",
}


def run(report: Report, options: argparse.Namespace, save: Callable[[], None]) -> None:
    """Start everything, then a row for each load and arm while there is time."""
    end_s = time.monotonic() + options.limit - REST_S
    with tempfile.TemporaryDirectory(prefix="pilotfish-pools-") as name, contextlib.ExitStack() as opened:
        start_s = time.monotonic()
        try:
            stack, fronts = started(Path(name) / "all", options, opened)
        except UnavailableError as error:
            if "head" not in options.arms:
                raise
            traceback.print_exc()
            report.row(arm="head", failed=f"the services do not start with it: {error!r:.300}")
            options.arms.remove("head")
            stack, fronts = started(Path(name) / "without-head", options, opened)
        report.conditions["start_s"] = round(time.monotonic() - start_s)
        formulas = Formulas(stack.steps, options.acceptance)
        add_steps(report, formulas, options.draft_tokens[0])
        save()
        with asyncio.Runner() as runner:
            plain: dict[int, float] = {}
            for load, arm, k in cells(options):
                row: dict[str, Any] = {"requests": load, "arm": arm, "K": k}
                if time.monotonic() + options.seconds > end_s:
                    report.row(**row, failed=f"not measured: --limit {options.limit:g} s")
                    continue
                try:
                    to = fronts[DRAFT_AHEAD.get(arm, "off")]
                    row |= runner.run(measure(to, PROPOSERS.get(arm, "draft"), load, k, options.seconds))
                    row |= compared(row, formulas.of(arm, load, k), plain)
                except Exception as error:  # the others still run
                    traceback.print_exc()
                    row["failed"] = f"{error!r:.300}"
                report.row(**row)
                print({key: value for key, value in row.items() if key in (*COLUMNS, "failed")}, flush=True)
                save()


def started(
    folder: Path, options: argparse.Namespace, opened: contextlib.ExitStack
) -> tuple[PlantedStack, dict[str, Front]]:
    """The services, and orchestrators by their `draft_ahead`. Raises UnavailableError when one does not start."""
    samples = {"samples": 3, "head_rounds": 15, "together_s": 0.5} if options.quick else {}
    planted = {"acceptance": options.acceptance, "lengths": options.draft_tokens, "loads": options.loads}
    write_models(folder, options.shape, {"samples": 9, "head_rounds": 60, "together_s": 1.5} | planted | samples)
    config = stack_config(folder, options.device, head="head" in options.arms, extra=options.set)
    stack = opened.enter_context(PlantedStack(config, on_line=show_line))
    fronts = {"off": Front(stack.address, stack.http_url)}
    for way in {DRAFT_AHEAD[arm] for arm in options.arms if arm in DRAFT_AHEAD}:
        fronts[way] = opened.enter_context(front(stack, folder, way))
    return stack, fronts


def cells(options: argparse.Namespace) -> Iterator[tuple[int, str, int]]:
    """Load, arm and draft tokens of each row: those that are compared right after each other."""
    for load in options.loads:
        for k in (0, *options.draft_tokens):
            yield from ((load, arm, k) for arm in options.arms if (arm == "plain") == (k == 0))


def compared(row: dict[str, Any], formula: dict[str, float], plain: dict[int, float]) -> dict[str, float]:
    """What a row is over plain decoding, and that over the formula; once more as if drafts had had average luck.

    plain: tokens a second by load, which a row of plain decoding adds to.
    """
    load, tokens_per_s = row["requests"], row["tokens_per_s"]
    if row["arm"] == "plain":
        plain[load] = tokens_per_s
        return formula | {"ratio": tokens_per_s / formula["formula_tokens_per_s"]}
    if load not in plain or "rounds" not in row:
        return formula
    speed_up = tokens_per_s / plain[load]
    ratio = speed_up / formula["formula_speed_up"]
    return formula | {
        "speed_up": speed_up,
        "ratio": ratio,
        "ratio_at_expected_tokens": ratio * formula["formula_tokens"] / row["tokens_per_round"],
        "overhead_ms": row["round_ms"] - formula["formula_round_ms"],
    }


def add_steps(report: Report, formulas: Formulas, k: int) -> None:
    """What a verification and a draft step of one sequence take, alone and while the other engine computes."""
    model = formulas.model(k, ahead=False)
    alone_ms = {"target": 1e3 * model.verify_s(1, k), "draft": 1e3 * model.draft_step_s(1)}
    report.conditions["plain step"] = f"{1e3 * model.token_s(1, 0):.2f} ms"
    for role, what in (("target", f"verification of {k} drafts"), ("draft", "draft step")):
        figures = formulas.steps[role]
        beside_ms = 1e3 * figures["beside_s"] if "beside_s" in figures else float("nan")
        report.conditions[what] = f"{alone_ms[role]:.2f} ms alone, {beside_ms:.2f} beside the other engine"
        report.conditions[f"{role} engine"] = f"{figures['build_s']:.0f} s to build, {figures['timing_s']:.0f} to time"
        report.conditions[f"{role} steps"] = figures["cost"]
        print(f"{what}: {report.conditions[what]}; {role} engine: {report.conditions[f'{role} engine']}", flush=True)


def check_tokens(report: Report) -> None:
    """Check of the draft service's rounds that what was planted came out."""
    for arm in ("pool", "ahead", "auto"):
        rows = [row for row in report.rows if row.get("arm") == arm and row.get("rounds")]
        if rounds := sum(row["rounds"] for row in rows):
            tokens = sum(row["rounds"] * row["tokens_per_round"] / row["formula_tokens"] for row in rows) / rounds
            report.check(f"{arm}: tokens a round over the formula's, off by", abs(tokens - 1), 0.05)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    result = parser(__doc__)
    result.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to see that it runs")
    result.add_argument("--shape", choices=list(PAIRS), default="llama-3.1-8b", help="of the target")
    result.add_argument("--acceptance", type=float, default=0.8, help="of a draft token (default 0.8)")
    result.add_argument("--draft-tokens", nargs="+", type=int, default=[5], metavar="K", help="(default 5)")
    result.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS[:4]))
    result.add_argument("--loads", nargs="+", type=int, default=list(LOADS), help="requests at a time")
    result.add_argument("--seconds", type=float, help="of each row (default 4, quick 2)")
    result.add_argument("--limit", type=float, default=420, help="seconds of the whole run, at most (default 420)")
    result.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="of all services")
    options = result.parse_args(arguments)
    options.seconds = options.seconds or (2.0 if options.quick else 4.0)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    conditions: dict[str, Any] = {
        "device": torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else "cpu",
        "torch": torch.__version__,
        "models": f"{options.shape} and {PAIRS[options.shape]}, random weights, bfloat16",
        "planted acceptance": options.acceptance,
        "sampling": "greedy",
    }
    report = Report("What is a draft service worth on a GPU?", conditions, columns=COLUMNS)

    def save() -> None:
        if options.json:
            report.write(options.json)

    def give_up() -> None:
        report.row(arm="stopped", failed=f"not done after {options.limit:g} s")
        save()
        print(f"not done after {options.limit:g} s", file=sys.stderr, flush=True)
        os._exit(1)  # the services end with this process

    watchdog = threading.Timer(options.limit, give_up)
    watchdog.daemon = True
    watchdog.start()
    has_run = False
    try:
        run(report, options, save)
        has_run = True
    except Exception as error:
        traceback.print_exc()
        report.row(arm="start", failed=f"{error!r:.300}")
    watchdog.cancel()
    check_tokens(report)
    save()
    shown = {key: value for key, value in conditions.items() if not key.endswith(" steps")}
    Report(report.question, shown, report.rows, report.checks, COLUMNS).show()
    return 0 if has_run else 1


if __name__ == "__main__":
    sys.exit(main())
