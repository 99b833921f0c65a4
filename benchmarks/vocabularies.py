"""What is a draft model of another vocabulary worth?

For each `--pair TARGET DRAFTER` (catalogue names, folders or GGUF files with tokenizers of their own) the target
decodes plainly, and with drafts of the other model from the draft service, its vocabulary translated by each method:
the tokens that both have, and text. Greedily and at 0.7, coupled; answers must be those of plain decoding.

Models of one size do not help each other; what carries over to a larger target is the acceptance.
"""

import sys
from collections.abc import Sequence

from rich.console import Console
from shared.real_models import asked, options_parser
from shared.report import Report

from pilotfish.bench.proposers import Proposer
from pilotfish.bench.result import Result, result_of
from pilotfish.bench.suite import STACK_DEFAULTS, run_stations, stations_of
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.config import Config, load_config

METHODS = ("intersection", "text")
TEMPERATURES = (0.0, 0.7)


def proposers_of(target: str, drafter: str) -> list[Proposer]:
    """The drafter with each method."""
    common = (f"target.model={target}", "draft.proposer=model", f"draft.model={drafter}")
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
            tokens_per_step=row.drafts.tokens_per_step,
            tokens_per_s=row.tokens_per_s,
            plain_tokens_per_s=plain.tokens_per_s,
            speed_up=row.speed_up,
            num_differing=row.num_answers - row.num_identical,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options_parser(__doc__, lengths=(4,))
    parser.set_defaults(prompts=1)
    parser.add_argument("--pair", nargs=2, action="append", required=True, metavar=("TARGET", "DRAFTER"))
    options = parser.parse_args(arguments)

    def configure(extra: Sequence[str]) -> Config:
        return load_config(overrides=[*STACK_DEFAULTS, "target.drafter.proposer=none", *extra, *options.set])

    report = Report("What is a draft model of another vocabulary worth?", {})
    for target, drafter in options.pair:
        for temperature in TEMPERATURES:
            options.temperature = temperature
            prompts, settings = asked(options, with_auto=False)
            with BenchProgress(Console(stderr=True)) as progress:
                stations = stations_of(proposers_of(target, drafter), configure)
                run = run_stations(stations, prompts, settings, progress=progress)
            result = result_of(run, settings, prompts_from=str(options.dataset or "our own set"), overrides=options.set)
            report.conditions |= {**result.conditions, "sampling": "greedy, and 0.7 coupled"}
            add_rows(report, result, target, drafter, temperature)
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
