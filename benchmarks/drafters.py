"""What is each proposer worth, over our own plain decoding and over transformers, in one run?

Every proposer gets a stack of its own; within it, plain decoding and each draft length answer every prompt in turn.
transformers' own generate (plain, with prompt lookup, and with the stand-alone drafter as assistant) takes turns with
the first stack. Speed-ups are ratios to plain decoding in the same turns. What a draft token costs is measured on
engines in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from draft_cost import model_draft_cost, self_draft_cost
from report import Report, parser
from rich.console import Console

from pilotfish.bench.against import transformers_arms, transformers_process
from pilotfish.bench.arms import Variant
from pilotfish.bench.html import to_html
from pilotfish.bench.measurement import Arm
from pilotfish.bench.peer_worker import SEED
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.proposers import Proposer, parse_proposers
from pilotfish.bench.result import Result, result_of
from pilotfish.bench.suite import STACK_DEFAULTS, Settings, run_stations, stations_of
from pilotfish.bench.tables import show
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import Config, load_config
from pilotfish.models.cache import ModelCache
from pilotfish.models.catalogue import resolve
from pilotfish.models.pull import cached_folder

HEADS = Path("models/smollm2-135m-instruct")
DRAFTERS = (
    "ngram",
    "suffix",
    "ngram-beside",
    "suffix-remote-tree",
    f"model={HEADS}-draft",
    f"hybrid={HEADS}-draft",
    f"eagle3-remote={HEADS}-eagle3",
    f"eagle3={HEADS}-eagle3",
    f"eagle3-tree={HEADS}-eagle3",
    f"eagle3-suffix={HEADS}-eagle3",
    f"eagle3-suffix-tree={HEADS}-eagle3",
    f"medusa={HEADS}-medusa",
    "early_exit",
)
"""One line each, with the weights that it needs."""
QUICK_DRAFTERS = ("ngram", "suffix")
ANSWER_TIMEOUT_S = 600.0
COST_DRAFT_TOKENS = 4
"""Of a proposal whose cost is measured."""


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
    folder = cached_folder(resolve(config.target.model), ModelCache(Path(config.cache_dir)))
    if folder is None:
        raise SystemExit(f"run `pilotfish models pull {config.target.model}` first")
    assistant = Path(f"{HEADS}-draft")
    with transformers_process(folder, config.target.engine, assistant if assistant.is_dir() else None) as process:
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


def add_draft_costs(report: Report, proposers: Sequence[Proposer], overrides: Sequence[str], samples: int) -> None:
    """What a draft token costs, of each proposer that computes."""
    for proposer in proposers:
        config = load_config(overrides=[*STACK_DEFAULTS, *proposer.overrides, *overrides])
        if proposer.name == "model":
            cost = model_draft_cost(config, COST_DRAFT_TOKENS, samples)
        elif config.target.self_drafter.proposer != "none":
            cost = self_draft_cost(config, COST_DRAFT_TOKENS, samples)
        else:
            continue
        report.check(f"draft step over a decode step ({proposer.name})", cost, 0.12)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--prompts", type=int, help="of each category (default 2, quick 1)")
    options_parser.add_argument("--proposers", nargs="+", default=None, metavar="NAME[=FOLDER]")
    options_parser.add_argument("-k", type=int, nargs="+", default=[3, 6], help="draft lengths, besides auto")
    options_parser.add_argument("--max-tokens", type=int, default=128)
    options_parser.add_argument("--repeats", type=int, default=1)
    options_parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options_parser.add_argument(
        "--temperature", type=float, default=0.0, help="0 is greedy (default); above, coupled sampling with one seed"
    )
    options_parser.add_argument("--without-transformers", action="store_true")
    options_parser.add_argument("--html", type=Path)
    return options_parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    prompts = load_prompts(options.dataset, per_category=options.prompts or (1 if options.quick else 2))
    if options.quick:
        prompts = prompts[:3]
    proposers = chosen_drafters(options.proposers or (QUICK_DRAFTERS if options.quick else DRAFTERS))
    settings = Settings(
        lengths=tuple(options.k),
        with_auto=True,
        max_tokens=32 if options.quick else options.max_tokens,
        num_repeats=options.repeats,
        options=GenerateOptions(temperature=options.temperature, seed=SEED),
        timeout_s=ANSWER_TIMEOUT_S,
    )

    def configure(extra: Sequence[str]) -> Config:
        return load_config(overrides=[*STACK_DEFAULTS, *extra, *options.set])

    with (
        transformers(configure(()), not options.without_transformers, options.temperature) as peers,
        BenchProgress(Console(stderr=True)) as progress,
    ):
        run = run_stations(stations_of(proposers, configure), prompts, settings, peers=peers, progress=progress)
    result = result_of(run, settings, prompts_from=str(options.dataset or "our own set"), overrides=options.set)
    report = Report("What is each proposer worth?", dict(result.conditions), rows=msgspec.to_builtins(result.rows))
    add_checks(report, result, run.variants)
    add_draft_costs(report, proposers, options.set, samples=10 if options.quick else 60)
    show(result, Console())
    report.finish(options, has_shown_rows=True)
    if options.html:
        options.html.write_text(to_html(result, run.variants), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
