"""`pilotfish bench load`: how does a service hold up when many ask at once?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pilotfish.bench.load.suite import MODES, LoadSettings, run_load
from pilotfish.bench.load.tables import show
from pilotfish.bench.load.workload import FORMS, parse_lengths
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.suite import STACK_DEFAULTS, Station
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.cli.commands.generate import DEFAULT_TIMEOUT_S, NumSpeculativeTokens
from pilotfish.cli.commands.serve import pull_models
from pilotfish.cli.console import error_console, print_result
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, BenchAddress, ConfigFile, NoColor, Overrides, Timeout
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import load_config
from pilotfish.emulation.profiles import load_profile
from pilotfish.errors import ConfigError


@fail_on_error()
def load(
    concurrency: Annotated[
        str,
        typer.Option("--concurrency", "-n", metavar="N,...", help="Requests in flight, measured one after another."),
    ] = "1,4,16",
    modes: Annotated[
        str, typer.Option("--modes", metavar="MODE,...", help=f"Of {', '.join(MODES)}; compared with `off`.")
    ] = "off,auto",
    prompts: Annotated[
        Path | None, typer.Option("--prompts", "-p", metavar="FILE", help="As for `bench`. Default: synthetic prompts.")
    ] = None,
    prompt_tokens: Annotated[
        str, typer.Option("--prompt-tokens", metavar="LENGTHS", help=f"Synthetic prompts' length: {FORMS}.")
    ] = "128",
    output_tokens: Annotated[str, typer.Option("--output-tokens", metavar="LENGTHS", help="Answer length.")] = "128",
    requests: Annotated[
        int | None, typer.Option("--requests", help="Measured per run. Default: 4 per user, at least 16.", min=1)
    ] = None,
    turns: Annotated[int, typer.Option("--turns", help="Runs per mode and load.", min=1)] = 1,
    num_speculative_tokens: NumSpeculativeTokens = None,
    proposer: Annotated[str, typer.Option("--proposer", help="Proposer. Default: the server's.")] = "",
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="For lengths, prompts and sampling.", min=0)] = 0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos/--no-ignore-eos", help="Continue after the end, for exact lengths.")
    ] = True,
    address: BenchAddress = None,
    emulate: Annotated[
        str | None, typer.Option("--emulate", metavar="PROFILE", help="Start services on emulated hardware.")
    ] = None,
    as_json: AsJson = False,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    no_color: NoColor = False,
) -> None:
    """Keep N requests in flight, and compare modes of speculation on the same requests.

    Failed requests are reported; the exit status only says whether the test ran. docs/load-testing.md explains
    the figures.

    [bold]Examples[/]

      pilotfish bench load --concurrency 1,8 --output-tokens 64

      pilotfish bench load --emulate a100-70b --modes off,on,auto --turns 3

      pilotfish bench load --address server:50051 --json
    """
    settings = LoadSettings(
        concurrencies=_concurrencies(concurrency),
        modes=tuple(mode.strip() for mode in modes.split(",")),
        options=GenerateOptions(
            temperature=temperature,
            seed=seed,
            ignore_eos=ignore_eos,
            num_speculative_tokens=num_speculative_tokens,
            proposer=proposer,
        ),
        prompts=[prompt.text for prompt in load_prompts(prompts)] if prompts else (),
        prompt_lengths=parse_lengths(prompt_tokens),
        output_lengths=parse_lengths(output_tokens),
        num_requests=requests,
        num_turns=turns,
        seed=seed,
        timeout_s=timeout,
    )
    station = _station(address, config_file, overrides or (), emulate)
    with BenchProgress(error_console()) as progress:
        result = run_load(station, settings, progress)
    print_result(result, show, as_json=as_json, no_color=no_color)


def _concurrencies(text: str) -> tuple[int, ...]:
    """Numbers with commas between them, each once. Raises ConfigError."""
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(f"concurrency {text!r} is no list of whole numbers such as 1,4,16") from None


def _station(address: str | None, config_file: Path | None, overrides: Sequence[str], emulate: str | None) -> Station:
    """What runs at an address, or a stack of our own."""
    if address:
        if config_file or overrides or emulate:
            raise ConfigError(
                "--config, --set and --emulate are for a stack that bench starts; --address names one that runs"
            )
        return Station(proposers=(), address=address)
    emulation = (f"emulation.profile={emulate}",) if emulate else ()
    config = load_config(config_file, [*STACK_DEFAULTS, *emulation, *overrides])
    if config.emulation.is_on:
        load_profile(config.emulation.profile)  # an unknown one is reported before anything starts
    pull_models(config)
    return Station(proposers=(), config=config)
