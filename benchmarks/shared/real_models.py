"""What benchmarks of real models share: options, prompts, what is asked of every arm, the target's weights."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from shared.peer_process import ANSWER_TIMEOUT_S, SEED
from shared.report import Report, parser

from pilotfish.bench.prompts import Prompt, load_prompts
from pilotfish.bench.result import Result
from pilotfish.bench.suite import Settings
from pilotfish.bench.tables import show
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import Config
from pilotfish.models.store.catalogue import resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder


def options_parser(description: str | None, *, lengths: Sequence[int]) -> argparse.ArgumentParser:
    """The options all of them have; lengths: draft lengths that are tried where -k names none."""
    result = parser(description, dataset=True)
    result.add_argument("--prompts", type=int, help="of each category (default 2, quick 1)")
    result.add_argument("-k", type=int, nargs="*", default=list(lengths), help="our draft lengths, besides auto")
    result.add_argument("--max-tokens", type=int, default=128)
    result.add_argument("--repeats", type=int, default=1)
    result.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="of our stack")
    result.add_argument(
        "--temperature", type=float, default=0.0, help="0 is greedy (default); above, coupled sampling with one seed"
    )
    return result


def asked(options: argparse.Namespace, *, with_auto: bool = True) -> tuple[list[Prompt], Settings]:
    """The prompts, and what every arm is asked. with_auto: an arm of mode auto beside the lengths."""
    prompts = load_prompts(options.dataset, per_category=options.prompts or (1 if options.quick else 2))
    settings = Settings(
        lengths=tuple(options.k),
        with_auto=with_auto,
        max_tokens=32 if options.quick else options.max_tokens,
        num_repeats=options.repeats,
        options=GenerateOptions(temperature=options.temperature, seed=SEED),
        timeout_s=ANSWER_TIMEOUT_S,
    )
    return prompts[:3] if options.quick else prompts, settings


def target_folder(config: Config) -> Path:
    """The target's weights on this machine. Ends the program where there are none."""
    folder = cached_folder(resolve(config.target.model), ModelCache(Path(config.cache_dir)))
    if folder is None:
        raise SystemExit(f"run `pilotfish models pull {config.target.model}` first")
    return folder


def report_of(question: str, result: Result) -> Report:
    """A report with the rows, which are shown here; checks are still to come."""
    show(result, Console())
    return Report(question, dict(result.conditions), rows=msgspec.to_builtins(result.rows))
