"""What is each proposer worth, over our own plain decoding?

Every proposer gets a stack of its own; within it, plain decoding and each draft length answer every prompt in turn.
Speed-ups are ratios to plain decoding in the same turns. `auto` is what the orchestrator chooses: with a head in the
draft service (`--set draft.proposer=eagle3 --set draft.head=...`) beside the default one in the target, and those two
named as well, it is judged against the better of them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from shared.real_models import asked, options_parser, report_of
from shared.report import Report, dataset_name

from pilotfish.bench.arms import Variant
from pilotfish.bench.proposers import Proposer, parse_proposers
from pilotfish.bench.result import Result, result_of
from pilotfish.bench.suite import STACK_DEFAULTS, run_stations, stations_of
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.config import Config, load_config

HEADS = Path("models/smollm2-135m-instruct")
DRAFTERS = (
    "ngram",
    "suffix",
    "ngram-in-target",
    "suffix-remote-tree",
    f"model={HEADS}-draft",
    f"model-suffix={HEADS}-draft",
    f"eagle3-remote={HEADS}-eagle3",
    f"eagle3-remote-suffix={HEADS}-eagle3",
    f"eagle3={HEADS}-eagle3",
    f"eagle3-tree={HEADS}-eagle3",
    f"eagle3-suffix={HEADS}-eagle3",
    f"eagle3-suffix-tree={HEADS}-eagle3",
    f"early_exit={HEADS}-early_exit",
)
"""One line each, with the weights that it needs."""
QUICK_DRAFTERS = ("ngram", "suffix")


def chosen_drafters(texts: Sequence[str]) -> list[Proposer]:
    """The drafters whose weights are here; the others are named on stderr."""
    there = []
    for text in texts:
        _, _, model = text.partition("=")
        if model and not Path(model).is_dir():
            print(f"left out: {text} (no such folder)", file=sys.stderr)
        else:
            there.append(text)
    return parse_proposers(there)


def add_checks(report: Report, result: Result, variants: dict[str, Variant], *, asked_speed_up: float = 1.6) -> None:
    """The figures that are asked for, from the rows."""
    overall = {row.arm: row for row in result.overall}
    own = [overall[name] for name, variant in variants.items() if not variant.is_plain]
    best = max(own, key=lambda row: row.speed_up or 0.0)
    report.check(f"best proposer over plain ({best.arm})", best.speed_up or 0.0, asked_speed_up, kind="at least")
    auto = [name for name, variant in variants.items() if not variant.is_plain and not variant.num_speculative_tokens]
    for name in auto:
        timed = {row.category: row.speed_up for row in result.rows if row.arm == name and row.speed_up is not None}
        if timed:
            category, speed_up = min(timed.items(), key=lambda item: item[1])
            report.check(f"{name}, worst category ({category})", speed_up, 1.0, kind="at least")
    differing = sum(row.num_answers - row.num_identical for row in (overall[result.baseline], *own))
    report.check("answers that differ from plain decoding's", differing, 0, "answers", "equal to")


def add_choice_checks(report: Report, result: Result) -> None:
    """What choosing among the drafters (`auto`) costs against the best single one of them, where both were run."""
    speed_ups: dict[str, dict[str, float]] = {}
    for row in (*result.overall, *result.rows):
        name, _, length = row.arm.partition(" ")
        if length == "auto" and row.speed_up is not None:
            speed_ups.setdefault(name, {})[row.category] = row.speed_up
    chosen = speed_ups.pop("auto", {})
    if not chosen or not speed_ups:
        return
    shares = {
        category: speed_up / max(each[category] for each in speed_ups.values() if category in each)
        for category, speed_up in chosen.items()
    }
    overall = shares.pop(result.overall[0].category)
    report.check("auto over the best single drafter", overall, 0.98, kind="at least")
    category, worst = min(shares.items(), key=lambda item: item[1])
    report.check(f"the same in the worst category ({category})", worst, 0.95, kind="at least")


def main(arguments: Sequence[str] | None = None) -> int:
    drafters_parser = options_parser(__doc__, lengths=(3, 6))
    drafters_parser.add_argument("--proposers", nargs="+", default=None, metavar="NAME[=FOLDER]")
    options = drafters_parser.parse_args(arguments)
    prompts, settings = asked(options)
    proposers = chosen_drafters(options.proposers or (QUICK_DRAFTERS if options.quick else DRAFTERS))

    def configure(extra: Sequence[str]) -> Config:
        return load_config(overrides=[*STACK_DEFAULTS, *extra, *options.set])

    with BenchProgress(Console(stderr=True)) as progress:
        run = run_stations(stations_of(proposers, configure), prompts, settings, progress=progress)
    result = result_of(run, settings, prompts_from=dataset_name(options), overrides=options.set)
    report = report_of("What is each proposer worth?", result)
    add_checks(report, result, run.variants)
    add_choice_checks(report, result)
    report.finish(options, has_shown_rows=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
