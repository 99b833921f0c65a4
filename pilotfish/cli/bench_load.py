"""`pilotfish bench load`: how does a service hold up when many ask at once?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pilotfish.bench.load.details import to_jsonl
from pilotfish.bench.load.html import to_html
from pilotfish.bench.load.lengths import FORMS, parse_lengths
from pilotfish.bench.load.level import Level, parse_levels
from pilotfish.bench.load.result import to_json
from pilotfish.bench.load.settings import MODES, LoadSettings
from pilotfish.bench.load.slo import parse_slo
from pilotfish.bench.load.suite import run_load
from pilotfish.bench.load.tables import show
from pilotfish.bench.load.trace import load_trace
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.suite import STACK_DEFAULTS, Station
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.generate import DEFAULT_TIMEOUT_S
from pilotfish.cli.options import BenchAddress, ConfigFile, NoColor, Overrides, Timeout
from pilotfish.cli.output_file import require_writable, write_whole
from pilotfish.cli.up import pull_models
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import load_config
from pilotfish.errors import ConfigError
from pilotfish.profiles import load_profile

DEFAULT_CONCURRENCY = "1,4,16"


@fail_on_error()
def load(
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            "-n",
            metavar="N,...",
            help=f"Closed loop: so many clients, one after the other. Default: {DEFAULT_CONCURRENCY}.",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", "-r", metavar="R,...", help="Open loop: requests due per second.")
    ] = None,
    burstiness: Annotated[
        float, typer.Option("--burstiness", help="Of --rate: 1 Poisson, below 1 in bursts, above 1 evener.")
    ] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help=".jsonl with timestamp (ms), input_length, output_length."),
    ] = None,
    trace_speed: Annotated[
        str, typer.Option("--trace-speed", metavar="X,...", help="Times as fast as the trace was recorded.")
    ] = "1",
    modes: Annotated[
        str, typer.Option("--modes", metavar="MODE,...", help=f"Of {', '.join(MODES)}; held against `off`.")
    ] = "off,auto",
    prompts: Annotated[
        Path | None, typer.Option("--prompts", "-p", metavar="FILE", help="As for bench; else synthetic ones.")
    ] = None,
    prompt_tokens: Annotated[
        str, typer.Option("--prompt-tokens", metavar="LENGTHS", help=f"Of synthetic prompts: {FORMS}.")
    ] = "128",
    output_tokens: Annotated[str, typer.Option("--output-tokens", metavar="LENGTHS", help="Of answers.")] = "128",
    requests: Annotated[
        int | None, typer.Option("--requests", help="Measured ones of a run. Default: by the load.", min=1)
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option("--warm-up", help="Requests of a run that do not count. Default: by the load.", min=0)
    ] = None,
    turns: Annotated[int, typer.Option("--turns", help="Runs of each mode at each load.", min=1)] = 1,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            "--slo", "--goodput", metavar="NAME:MS,...", help="What is good enough: ttft, tpot, itl, e2e; repeatable."
        ),
    ] = None,
    num_speculative_tokens: Annotated[
        int | None, typer.Option("--num-speculative-tokens", "-k", help="Draft tokens a round.", min=1)
    ] = None,
    proposer: Annotated[str, typer.Option("--proposer", help="Default: the server's.")] = "",
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Of arrivals, lengths, prompts and sampling.", min=0)] = 0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos/--no-ignore-eos", help="Go on after the end, so that lengths are as given.")
    ] = True,
    connections: Annotated[int, typer.Option("--connections", help="TCP connections of the client.", min=1)] = 4,
    address: BenchAddress = None,
    emulate: Annotated[
        str | None, typer.Option("--emulate", metavar="PROFILE", help="Start services over emulated hardware.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a report with plots.")] = None,
    details: Annotated[
        Path | None, typer.Option("--details", metavar="FILE", help="Also write every request as a line of JSON.")
    ] = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    no_color: NoColor = False,
) -> None:
    """Load a service and report rates, latencies, goodput and failures, for each mode of speculation.

    Closed loop (--concurrency), open loop (--rate, --trace), or several after each other. Failed requests are
    reported; the exit status only says whether it ran. docs/load-testing.md explains the figures.

    [bold]Examples[/]

      pilotfish bench load --concurrency 1,8 --output-tokens 64

      pilotfish bench load --rate 2,8 --slo ttft:500,tpot:20 --html report.html

      pilotfish bench load --emulate a100-70b --rate 4 --modes off,on,auto

      pilotfish bench load --address server:50051 --trace requests.jsonl --trace-speed 1,2
    """
    for path in (html, details):
        if path:
            require_writable(path)
    settings = LoadSettings(
        levels=_levels(concurrency, rate, burstiness, trace_speed if trace else None),
        modes=tuple(mode.strip() for mode in modes.split(",")),
        options=GenerateOptions(
            temperature=temperature,
            ignore_eos=ignore_eos,
            num_speculative_tokens=num_speculative_tokens,
            proposer=proposer,
        ),
        prompts=[prompt.text for prompt in load_prompts(prompts)] if prompts else (),
        prompt_lengths=parse_lengths(prompt_tokens),
        output_lengths=parse_lengths(output_tokens),
        trace=load_trace(trace) if trace else (),
        num_requests=requests,
        num_warm_up=warm_up,
        num_turns=turns,
        slo=parse_slo(slo or []),
        seed=seed,
        num_channels=connections,
        timeout_s=timeout,
    )
    station = _station(address, config_file, overrides or (), emulate)
    with BenchProgress(error_console()) as progress:
        run = run_load(station, settings, progress)
    if html:
        write_whole(html, to_html(run.result))
    if details:
        write_whole(details, to_jsonl(run.windows))
    if as_json:
        print(to_json(run.result))
    else:
        show(run.result, output_console(no_color=no_color))


def _levels(concurrency: str | None, rate: str | None, burstiness: float, trace_speed: str | None) -> tuple[Level, ...]:
    """All that is named, the closed loop first."""
    levels = parse_levels("rate", rate, burstiness=burstiness) if rate else []
    levels += parse_levels("trace", trace_speed) if trace_speed else []
    if concurrency or not levels:
        levels = parse_levels("concurrency", concurrency or DEFAULT_CONCURRENCY) + levels
    return tuple(levels)


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
        load_profile(config.emulation.profile)  # an unknown one is told before anything starts
    pull_models(config)
    return Station(proposers=(), config=config)
