"""What is a draft model of another vocabulary worth?

For each `--pair TARGET DRAFTER` (catalogue names, folders or GGUF files with tokenizers of their own) the target
decodes plainly, and with drafts of the other model from the draft service, its vocabulary translated by each method:
the tokens that both have, and text. Greedily and at 0.7, coupled; answers must be those of plain decoding.

`--tiny [KIND ...]`: the default model drafts for small targets with vocabularies of the field's kinds, which are made
here (vocabularies/kinds.py) and have learned the default model's own greedy answers to the same prompts by heart, for
two minutes at most: what is not accepted is lost to the vocabulary.

Models of one size do not help each other; what carries over to a larger target is the acceptance.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from shared.real_models import asked, options_parser, target_folder
from shared.report import Report, dataset_name
from vocabularies.kinds import KINDS
from vocabularies.tiny_targets import answers_of, make_target

from pilotfish.bench.prompts import Prompt
from pilotfish.bench.proposers import Proposer
from pilotfish.bench.result import Result, result_of
from pilotfish.bench.suite import STACK_DEFAULTS, run_stations, stations_of
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.config import Config, load_config

METHODS = ("intersection", "text")
TEMPERATURES = (0.0, 0.7)
DEADLINE_MS = 10_000


def proposers_of(target: str, drafter: str) -> list[Proposer]:
    """The drafter with each method. Rounds wait for it: a small target would do without what a larger model drafts."""
    waiting = f"orchestrator.speculation.draft_deadline_ms={DEADLINE_MS}"
    common = (f"target.model={target}", "draft.proposer=model", f"draft.model={drafter}", waiting)
    return [Proposer(method, "draft", (*common, f"draft.vocabulary={method}")) for method in METHODS]


def add_rows(report: Report, result: Result, target: str, drafter: str, temperature: float) -> None:
    """One for each method and draft length."""
    plain = next(row for row in result.overall if row.arm == result.baseline)
    for row in result.overall:
        if row.arm == result.baseline or row.drafts is None:
            continue
        report.row(
            target=target,
            drafter=drafter,
            method=row.arm,
            temperature=temperature,
            accepted_share=row.drafts.acceptance_rate,
            accepted_by_place=row.drafts.acceptance_per_position,
            tokens_per_step=row.drafts.tokens_per_step,
            tokens_per_s=row.tokens_per_s,
            plain_tokens_per_s=plain.tokens_per_s,
            speed_up=row.speed_up,
            num_differing=row.num_answers - row.num_identical,
        )


def tiny_pairs(
    kinds: Sequence[str], folder: Path, prompts: Sequence[Prompt], max_tokens: int, report: Report
) -> list[tuple[str, str]]:
    """Small targets of these kinds, each with the default model as its drafter."""
    config = load_config(overrides=["target.drafter.proposer=none", "target.drafter.lookup=none"])
    default = config.target.model
    texts = answers_of(config, prompts, max_tokens)
    template = target_folder(config) / "chat_template.jinja"
    pairs = []
    for kind in kinds:
        loss = make_target(kind, folder / kind, texts, max_tokens, template)  # type: ignore[arg-type]
        report.conditions[f"{kind}: loss of the answers learned"] = round(loss, 3)
        pairs.append((str(folder / kind), default))
    return pairs


def measure(options: argparse.Namespace, report: Report, configure: Callable[[Sequence[str]], Config]) -> None:
    """All pairs, at both temperatures."""
    for target, drafter in options.pair:
        for temperature in TEMPERATURES:
            options.temperature = temperature
            prompts, settings = asked(options, with_auto=False)
            with BenchProgress(Console(stderr=True)) as progress:
                stations = stations_of(proposers_of(target, drafter), configure)
                run = run_stations(stations, prompts, settings, progress=progress)
            result = result_of(run, settings, prompts_from=dataset_name(options), overrides=options.set)
            report.conditions |= {**result.conditions, "sampling": "greedy, and 0.7 coupled"}
            add_rows(report, result, Path(target).name, drafter, temperature)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options_parser(__doc__, lengths=(4,))
    parser.set_defaults(prompts=1)
    parser.add_argument("--pair", nargs=2, action="append", default=[], metavar=("TARGET", "DRAFTER"))
    parser.add_argument("--tiny", nargs="*", choices=KINDS, help="small targets of these kinds (default all)")
    options = parser.parse_args(arguments)

    def configure(extra: Sequence[str]) -> Config:
        return load_config(overrides=[*STACK_DEFAULTS, "target.drafter.proposer=none", *extra, *options.set])

    report = Report("What is a draft model of another vocabulary worth?", {})
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny is not None:
            prompts, settings = asked(options)
            kinds = options.tiny or KINDS
            options.pair += tiny_pairs(kinds, Path(folder), prompts, settings.max_tokens, report)
        measure(options, report, configure)
    num_wrong = sum(row["num_differing"] for row in report.rows)
    report.check("answers that differ from plain decoding's", num_wrong, 0, "", "equal to")
    report.columns = {
        "target": "target",
        "drafter": "drafter",
        "method": "method",
        "temperature": "temp.",
        "accepted_share": "accepted",
        "tokens_per_step": "tokens a step",
        "tokens_per_s": "tok/s",
        "plain_tokens_per_s": "plain",
        "speed_up": "speed-up",
    }
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
