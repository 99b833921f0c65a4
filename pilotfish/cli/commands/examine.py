"""`pilotfish examine`: which drafter, how many tokens, from which load off, and why not more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pilotfish.bench.prompts import Prompt, load_prompts
from pilotfish.bench.text_file import read_lines
from pilotfish.cli.commands.serve import pull_models
from pilotfish.cli.console import error_console, print_result
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, NoColor, Overrides, check_address
from pilotfish.cli.output_file import require_writable, write_whole
from pilotfish.client.access import Access
from pilotfish.config import Config, load_config
from pilotfish.config.yaml_file import read_yaml
from pilotfish.drafter_registry import DRAFTERS
from pilotfish.errors import ConfigError
from pilotfish.installation import require
from pilotfish.planning.planner import ROUND_TRIP_S

if TYPE_CHECKING:
    from pilotfish.examine.questions import Order
    from pilotfish.examine.recent import RecentRequests
    from pilotfish.examine.result import Examination
    from pilotfish.examine.service.answers import AskedService

DEFAULT_MAX_TOKENS, DEFAULT_DRAFT_TOKENS, DEFAULT_TEMPERATURE = 64, 8, 0.7


@fail_on_error()
def examine(
    drafters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DRAFTER[=MODEL]]...", help=f"{', '.join(DRAFTERS)}. Default: those configured, and suffix."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", "-p", metavar="FILE", help="Spec-Bench's .jsonl, or a text file, a prompt a line."),
    ] = None,
    per_category: Annotated[
        int | None,
        typer.Option("--per-category", metavar="N", min=1, help="N prompts of each category, or of each kind."),
    ] = None,
    recent: Annotated[
        bool, typer.Option("--recent", help="In place of prompts, what services that learn were asked and answered.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            "-a",
            metavar="HOST:PORT",
            callback=check_address,
            help="A running orchestrator, which answers the prompts in place of a target here.",
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=2, help="Tokens per answer.")
    ] = DEFAULT_MAX_TOKENS,
    num_draft_tokens: Annotated[
        int, typer.Option("--num-speculative-tokens", "-k", min=1, max=31, help="Tokens per draft, at most.")
    ] = DEFAULT_DRAFT_TOKENS,
    temperature: Annotated[
        float, typer.Option("--temperature", "-t", min=0, help="Of a second answer to each prompt; 0: none.")
    ] = DEFAULT_TEMPERATURE,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="JSON schema that every answer follows.")
    ] = None,
    network_ms: Annotated[
        float,
        typer.Option("--network-ms", help="Round trip to a draft service, handling included; as in `plan`.", min=0),
    ] = ROUND_TRIP_S * 1e3,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the advice into this configuration file.")
    ] = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> None:
    """Say what a drafter is worth to its target, and why not more.

    The target answers prompts, and each drafter drafts after every token of the answers. From that and from measured
    times of steps follow acceptance by place, tokens/s at 1 to 64 requests for each draft length, and causes of low
    acceptance. Starts no services. docs/examine.md explains the figures.

    [bold]Examples[/]

      pilotfish examine                                       the configured drafters, on built-in prompts

      pilotfish examine eagle3=./my-head medusa=./my-medusa --set target.model=MODEL

      pilotfish examine eagle3 model=SMALL-MODEL ngram --prompts mine.jsonl --write pilotfish.yaml

      pilotfish examine --address server:50051                the answers of a running service, and what it measured

      pilotfish examine --recent --config pilotfish.yaml      recent requests of the services of this configuration
    """
    require("torch", "`pilotfish examine`")
    if write is not None:
        require_writable(write)
    config = load_config(config_file, overrides or ())
    if config.emulation.is_on:
        raise ConfigError("emulated engines have nothing to examine: leave emulation.profile out")
    if recent and (prompts is not None or schema is not None):
        raise ConfigError("--recent takes the answers that there are: leave --prompts and --schema out")
    if address and (recent or schema is not None):
        raise ConfigError("--address asks a running service for answers: leave --recent and --schema out")
    chosen = [] if recent else load_prompts(prompts, per_category=per_category)
    # torch takes seconds to import, and the command line is free of it.
    from pilotfish.examine.drafters import parse_drafters
    from pilotfish.examine.questions import Order
    from pilotfish.examine.result import without_target
    from pilotfish.examine.service.answers import has_weights
    from pilotfish.examine.tables import show

    start_s, service = time.monotonic(), None
    if address:
        config, service = _ask(address, config, chosen, max_tokens, temperature)
        if not has_weights(config):
            if write is not None:
                raise ConfigError(f"--write needs a prediction, and {service.model} is not on this machine")
            found = without_target(service, temperature, time.monotonic() - start_s)
            print_result(found, show, as_json=as_json, no_color=no_color)
            return
    named = parse_drafters(drafters or (), config)
    asked = _recent(config, per_category) if recent else None
    order = Order(
        config=config,
        drafters=named if drafters or asked is None else [*asked.drafters, *named],
        prompts=chosen,
        recent=asked,
        service=service,
        max_tokens=max_tokens,
        num_draft_tokens=num_draft_tokens,
        temperature=0.0 if recent else temperature,
        round_trip_s=network_ms / 1e3,
        schema="" if schema is None else "\n".join(read_lines(schema, "a JSON schema from")),
    )
    pull_models(config)
    result = _examined(order)
    print_result(result, show, as_json=as_json, no_color=no_color)
    if write is not None:
        _write(write, order, result)
        error_console(no_color=no_color).print(f"{write} is written: `pilotfish up --config {write}`", soft_wrap=True)


def _recent(config: Config, per_kind: int | None) -> RecentRequests:
    require("cryptography", "`pilotfish examine --recent`")
    from pilotfish.examine.recent import read_recent

    return read_recent(config, per_kind, time.time())


def _ask(
    address: str, config: Config, prompts: Sequence[Prompt], max_tokens: int, temperature: float
) -> tuple[Config, AskedService]:
    from pilotfish.examine.service.answers import ask_service

    with _progress() as bars:
        task = bars.add_task("the service answers", total=None)
        return ask_service(
            address,
            Access.from_environment(),
            config,
            prompts,
            max_tokens=max_tokens,
            temperature=temperature,
            on_answer=lambda done, total: bars.update(task, completed=done, total=total),
        )


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=error_console(), transient=True)


def _examined(order: Order) -> Examination:
    from pilotfish.examine.examine import examine as run

    with _progress() as bars:
        task = bars.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total or None)

        return run(order, report)


def _write(path: Path, order: Order, result: Examination) -> None:
    from pilotfish.examine.drafters import configured_for, settings_for
    from pilotfish.examine.settings import with_advice

    values = (read_yaml(path, "configuration") or {}) if path.is_file() else {}
    best = next((drafter for drafter in order.drafters if drafter.name == result.advice.drafter), None)
    settings = {} if best is None else settings_for(configured_for(order.config, best))
    write_whole(path, with_advice(values, result.advice, settings))
