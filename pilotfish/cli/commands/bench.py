"""`pilotfish bench`: is speculation worth it here, with which proposer and how many draft tokens?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pilotfish.bench.arms import STEP
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.proposers import PROPOSERS, Proposer, parse_proposers
from pilotfish.bench.result import result_of
from pilotfish.bench.suite import (
    STACK_DEFAULTS,
    STEP_DEFAULTS,
    Settings,
    Station,
    has_proposer,
    run_stations,
    stations_of,
)
from pilotfish.bench.tables import show
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.cli.commands.generate import (
    DEFAULT_TIMEOUT_S,
    Level,
    MaxTokens,
    StepJudge,
    StepThreshold,
)
from pilotfish.cli.commands.serve import pull_models
from pilotfish.cli.console import error_console, print_result
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, BenchAddress, ConfigFile, NoColor, Overrides, Timeout
from pilotfish.client.access import Access
from pilotfish.client.answer import GenerateOptions
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config, load_config
from pilotfish.errors import ConfigError
from pilotfish.types import AcceptanceMode

DEFAULT_LENGTHS = (3, 5)
DEFAULT_MAX_TOKENS = 128


@fail_on_error()
def bench(
    context: typer.Context,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", "-p", metavar="FILE", help="Spec-Bench's .jsonl, or a text file, a prompt a line."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            metavar="FILE.jsonl",
            help="Right answers: lines with question_id and reference. Default: the prompts' own.",
        ),
    ] = None,
    per_category: Annotated[int | None, typer.Option("--per-category", help="Prompts per category.", min=1)] = None,
    proposers: Annotated[
        list[str] | None,
        typer.Option(
            "--proposers",
            metavar="NAME[=MODEL],...",
            help=f"Proposers to measure: {', '.join(PROPOSERS)}; MODEL: its weights. Default: the configuration's.",
        ),
    ] = None,
    lengths: Annotated[
        list[int] | None, typer.Option("--num-speculative-tokens", "-k", help="Draft tokens per round; repeatable.")
    ] = None,
    auto: Annotated[bool, typer.Option("--auto/--no-auto", help="Also measure mode auto.")] = True,
    max_tokens: MaxTokens = DEFAULT_MAX_TOKENS,
    repeats: Annotated[int, typer.Option("--repeats", help="Answers of each arm to each prompt.", min=1)] = 1,
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="For sampled answers.", min=0)] = 0,
    acceptance: Annotated[
        str,
        typer.Option(
            "--acceptance",
            metavar="RULE,...",
            help="coupled or rejection: acceptance above temperature 0. typical, tolerance: additional, lossy arms.",
        ),
    ] = "coupled",
    level: Annotated[
        Level, typer.Option("--level", help="step: also lossy arms, over steps of reasoning; needs a draft model.")
    ] = "token",
    step_judge: StepJudge = "score",
    step_threshold: StepThreshold = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Continue after the end: equal lengths, but odd text.")
    ] = False,
    address: BenchAddress = None,
    as_json: AsJson = False,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    no_color: NoColor = False,
) -> None:
    """Measure plain and speculative decoding on the same prompts, in turns, and say whether speculation pays.

    Starts the services on this machine for each configuration that the proposers need, or uses a running one.
    Ends with a verdict for each category of prompts. docs/benchmarking.md explains the figures.

    [bold]Examples[/]

      pilotfish bench                                         the configured proposer, on built-in prompts

      pilotfish bench --proposers ngram,suffix -k 3 -k 8 --max-tokens 64

      pilotfish bench --proposers eagle3=models/smollm2-135m-instruct-eagle3 --json

      pilotfish bench --address server:50051 --prompts mine.txt --json

      pilotfish bench --acceptance typical,tolerance          additional lossy arms, and what they cost

      pilotfish bench load --help                             many requests at once
    """
    if context.invoked_subcommand:
        _require_no_options(context)
        return
    chosen = load_prompts(prompts, per_category=per_category, references=reference)
    exact, lossy = _acceptances(acceptance)
    settings = Settings(
        lengths=tuple(dict.fromkeys(lengths or DEFAULT_LENGTHS)),
        with_auto=auto,
        max_tokens=max_tokens or DEFAULT_MAX_TOKENS,
        num_repeats=repeats,
        options=GenerateOptions(
            temperature=temperature,
            seed=seed,
            ignore_eos=ignore_eos,
            acceptance=exact,
            step_judge=step_judge,
            step_threshold=step_threshold,
            cache_salt="bench" if level == STEP else "",
        ),
        lossy=(*lossy, *((STEP,) if level == STEP else ())),
        timeout_s=timeout,
    )
    stations = _stations(proposers, address, config_file, overrides or (), with_steps=level == STEP)
    with BenchProgress(error_console()) as progress:
        run = run_stations(stations, chosen, settings, progress=progress)
    result = result_of(run, settings, prompts_from=str(prompts or "our own set"), overrides=overrides or ())
    print_result(result, show, as_json=as_json, no_color=no_color)


def _require_no_options(context: typer.Context) -> None:
    """Options before a sub-command would be ignored in silence."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise ConfigError(f"options of `{context.invoked_subcommand}` come after it, but {given[0]} came before")


def _acceptances(text: str) -> tuple[AcceptanceMode, tuple[str, ...]]:
    """The exact arms' rule, and the names of the lossy ones. Raises ConfigError."""
    names = dict.fromkeys(name.strip() for name in text.split(","))
    try:
        modes = [AcceptanceMode[name.upper()] for name in names]
    except KeyError:
        known = ", ".join(mode.name.lower() for mode in AcceptanceMode)
        raise ConfigError(f"--acceptance {text!r} is unknown; known are {known}") from None
    exact = [mode for mode in modes if not mode.is_lossy] or [AcceptanceMode.COUPLED]
    if len(exact) > 1:
        raise ConfigError("--acceptance: the exact arms have one rule, coupled or rejection")
    return exact[0], tuple(mode.name.lower() for mode in modes if mode.is_lossy)


def _stations(
    names: Sequence[str] | None,
    address: str | None,
    config_file: Path | None,
    overrides: Sequence[str],
    *,
    with_steps: bool,
) -> list[Station]:
    """One at an address, or a stack for each configuration that the proposers need."""
    if address:
        if config_file or overrides:
            raise ConfigError("--config and --set are for a stack that bench starts; --address names one that runs")
        return [Station(proposers=_running_proposers(names, address), address=address)]

    def configure(extra: Sequence[str]) -> Config:
        defaults = (*STACK_DEFAULTS, *(STEP_DEFAULTS if with_steps else ()))
        config = load_config(config_file, [*defaults, *extra, *overrides])
        pull_models(config)
        return config

    default = load_config(config_file, overrides).orchestrator.speculation.proposer
    return stations_of(parse_proposers(names or [default]), configure)


def _running_proposers(names: Sequence[str] | None, address: str) -> list[Proposer]:
    """Proposers by the names of requests; which of them there are is checked against what serves there."""
    if names:
        return [Proposer(name.strip(), name.strip()) for name in ",".join(names).split(",")]
    with InferenceClient(address, access=Access.from_environment()) as client:
        info = client.info()
    return [Proposer(name, name) for name in info.proposers if name != "auto" and has_proposer(info, name)]
