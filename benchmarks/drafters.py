"""What is each proposer worth, over our own plain decoding and over transformers, in one run?

Every proposer gets a stack of its own; within it, plain decoding and each draft length answer every prompt in turn.
transformers' own generate (plain, with prompt lookup, and with the stand-alone drafter as assistant) takes turns with
the first stack. Speed-ups are ratios to plain decoding in the same turns.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from shared.real_models import ANSWER_TIMEOUT_S, asked, options_parser, report_of, target_folder
from shared.report import Report

from pilotfish.bench.arms import Variant
from pilotfish.bench.measurement import Arm
from pilotfish.bench.peers.process import transformers_arms, transformers_process
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
    f"suffix-model={HEADS}-draft",
    f"eagle3-remote={HEADS}-eagle3",
    f"eagle3={HEADS}-eagle3",
    f"eagle3-tree={HEADS}-eagle3",
    f"eagle3-suffix={HEADS}-eagle3",
    f"eagle3-suffix-tree={HEADS}-eagle3",
)
"""One line each, with the weights that it needs."""
QUICK_DRAFTERS = ("ngram", "suffix")


def chosen_drafters(texts: Sequence[str]) -> list[Proposer]:
    """Those whose weights are here; the others are named on stderr."""
    there = []
    for text in texts:
        _, _, model = text.partition("=")
        if model and not Path(model).is_dir():
            print(f"left out: {text} (no such folder)", file=sys.stderr)
        else:
            there.append(text)
    return parse_proposers(there)


@contextlib.contextmanager
def transformers(config: Config, wanted: bool, temperature: float) -> Iterator[Sequence[Arm]]:
    """Its arms, or none."""
    if not wanted:
        yield ()
        return
    assistant = Path(f"{HEADS}-draft")
    with transformers_process(
        target_folder(config), config.target.engine, assistant if assistant.is_dir() else None
    ) as process:
        yield transformers_arms(process, timeout_s=ANSWER_TIMEOUT_S, temperature=temperature)


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
    theirs = overall.get("transformers plain")
    if theirs is not None and theirs.total_speed_up and best.total_speed_up:
        ratio = best.total_speed_up / theirs.total_speed_up
        report.check(f"whole answers over transformers' plain generate ({best.arm})", ratio, 3.0, kind="at least")


def main(arguments: Sequence[str] | None = None) -> int:
    drafters_parser = options_parser(__doc__, lengths=(3, 6))
    drafters_parser.add_argument("--proposers", nargs="+", default=None, metavar="NAME[=FOLDER]")
    drafters_parser.add_argument("--without-transformers", action="store_true")
    options = drafters_parser.parse_args(arguments)
    prompts, settings = asked(options)
    proposers = chosen_drafters(options.proposers or (QUICK_DRAFTERS if options.quick else DRAFTERS))

    def configure(extra: Sequence[str]) -> Config:
        return load_config(overrides=[*STACK_DEFAULTS, *extra, *options.set])

    with (
        transformers(configure(()), not options.without_transformers, options.temperature) as peers,
        BenchProgress(Console(stderr=True)) as progress,
    ):
        run = run_stations(stations_of(proposers, configure), prompts, settings, peers=peers, progress=progress)
    result = result_of(run, settings, prompts_from=str(options.dataset or "our own set"), overrides=options.set)
    report = report_of("What is each proposer worth?", result)
    add_checks(report, result, run.variants)
    report.finish(options, has_shown_rows=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
