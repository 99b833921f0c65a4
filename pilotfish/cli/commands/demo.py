"""`pilotfish demo`: the same prompts plain and with drafts, side by side, then an emulated 70B. `make demo` runs it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console

from pilotfish.bench.prompts import Prompt
from pilotfish.bench.proposers import Proposer
from pilotfish.bench.result import result_of
from pilotfish.bench.suite import STACK_DEFAULTS, Settings, Station, has_proposer, run_stations, started_info
from pilotfish.bench.tables import show
from pilotfish.chat import ChatMessage
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.cli.commands.serve import pull_models, run_services
from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import EXIT_INTERRUPTED, fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.cli.preflight import find_running, require_free
from pilotfish.cli.rendering import legend, render
from pilotfish.cli.service_lines import Printer
from pilotfish.client.access import Access
from pilotfish.client.answer import GenerateOptions
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config, EmulationConfig, load_config
from pilotfish.config.fields import address_of
from pilotfish.drafter_registry import Location, Needs, drafters_of
from pilotfish.launch.local_stack import LocalStack

MAX_TOKENS = 96
TIMEOUT_S = 300.0
NUM_DRAFT_TOKENS = 5
NUM_REPEATS = 3
EMULATED_PROFILE = "a100-70b"
EMULATED_TOKENS = 384
"""Length of an answer: with NUM_REPEATS, some ten seconds."""

REWRITE = (
    "Correct the spelling and repeat the whole text: The litle fish swims ahead of the shark. The litle fish looks "
    "around every rock, and the shark decides where to go. When the litle fish is right, the shark follows at once. "
    "When the litle fish is wrong, the shark turns, and the litle fish swims ahead of the shark again."
)
PASSAGE = (
    "Summarise in three sentences: Pilot fish live beside sharks, rays and sea turtles in warm seas around the world. "
    "They eat the parasites on their host's skin and the leftovers of its meals, and few hunters dare to come near. "
    "Sailors once believed that the fish lead the shark to its food, which gave them their name. Young pilot fish "
    "gather around jellyfish and drifting seaweed; only when they have grown do they follow larger animals. They also "
    "follow ships, sometimes for weeks, and were seen to swim behind sailing boats over whole oceans. A shark hardly "
    "ever eats its pilot fish, although they swim in front of its mouth and even into it to clean its teeth."
)
PROMPTS = (
    Prompt("repeating", REWRITE),
    Prompt("ordinary", "Why is the sky blue? Answer in three sentences."),
    Prompt("passage", PASSAGE),
)
EMULATED_PROMPTS = (Prompt("70B", "The words of an emulated engine mean nothing."),)


@fail_on_error()
def demo(config_file: ConfigFile = None, overrides: Overrides = None) -> None:
    """Start the services if none run, and compare plain answers with drafts from the draft service and in the target.

    Then the same on an emulated 70B, whose engines only take the time of the hardware.
    """
    config = _with_pool_drafter(load_config(config_file, [*STACK_DEFAULTS, *(overrides or ())]))
    console = output_console()
    address = address_of(config.orchestrator.host, config.orchestrator.port)
    running = find_running(address)
    if running is not None:
        console.print(
            f"Using what already serves {running.model_id} on {address}. It may draft from its own earlier answers, "
            "which flatters drafts: the prompts repeat."
        )
        compare(address, console, None, PROMPTS, MAX_TOKENS)
        return
    require_free(config.orchestrator.host, config.orchestrator.port)
    pull_models(config)
    console.print("Starting the three services under Ray Serve on this machine ...")
    asyncio.run(_start_and_compare(config, console))
    if not config.emulation.is_on:
        _emulate(console)


def _with_pool_drafter(config: Config) -> Config:
    """The configuration with the head that it puts into the target in the draft service as well, unless another drafter
    is configured there: the same head in both places."""
    head = config.target.drafter.proposer
    is_head = head in drafters_of(Needs.FEATURES, Location.DRAFT_SERVICE)
    draft = config.draft
    if draft.proposer != "auto" or not draft.num_replicas or config.emulation.is_on or not is_head:
        return config
    draft = dataclasses.replace(
        draft, proposer=head, head=draft.head or config.target.drafter.model, model=config.target.model
    )
    return dataclasses.replace(config, draft=draft)


async def _start_and_compare(config: Config, console: Console) -> None:
    """Run the services for as long as the comparison takes."""
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    services = asyncio.create_task(
        run_services(config, standalone=False, on_line=Printer(console).line, on_up=address.set_result, stop=stop)
    )
    try:
        first: list[asyncio.Future[Any]] = [services, address]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if address.done():
            # On a thread, whose calls fail at once when a signal stops the services.
            comparison = asyncio.create_task(
                asyncio.to_thread(compare, address.result(), console, config, PROMPTS, MAX_TOKENS)
            )
            await asyncio.wait([services, comparison], return_when=asyncio.FIRST_COMPLETED)
            if not services.done():
                await comparison
            else:
                await asyncio.wait([comparison])
                comparison.exception()  # seen: what the stop did to the call
    finally:
        interrupted = stop.is_set()
        stop.set()
        await services
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _emulate(console: Console) -> None:
    """The services once more, with engines that take the time of hardware that is not here."""
    console.print(
        f"\nNow [bold]emulated[/]: the engines take the time of a 70B model on 8 A100 ({EMULATED_PROFILE}) and write "
        "meaningless words; a drafter on a ninth is right 8 times in 10 and drafts ahead. All else is real."
    )
    with LocalStack(Config(emulation=EmulationConfig(profile=EMULATED_PROFILE))) as stack:
        compare(stack.address, console, stack.config, EMULATED_PROMPTS, EMULATED_TOKENS)


def compare(address: str, console: Console, started: Config | None, prompts: Sequence[Prompt], max_tokens: int) -> None:
    """Answer every prompt in every way that is served there, and print the figures.

    started: the configuration of services that have just started; None: they have run before.
    """
    options = GenerateOptions(temperature=0)
    with InferenceClient(address, access=Access.from_environment()) as client:
        info = started_info(client, started)
        names = [name for name in ("draft", info.drafter) if name and has_proposer(info, name)]
        for prompt in () if info.emulated else prompts:
            _show(client, prompt, dataclasses.replace(options, max_tokens=max_tokens, speculation="on"), console)
    settings = Settings(
        lengths=(NUM_DRAFT_TOKENS,),
        with_auto=False,
        max_tokens=max_tokens,
        num_repeats=NUM_REPEATS,
        options=options,
        timeout_s=TIMEOUT_S,
    )
    station = Station(proposers=[Proposer(name, name) for name in names], address=address)
    console.print()
    with BenchProgress(error_console()) as progress:
        run = run_stations([station], prompts, settings, progress=progress)
    show(result_of(run, settings, prompts_from="the demo"), console)
    for name in names:
        console.print(_advice(name), soft_wrap=True)


def _advice(name: str) -> str:
    """When to take a drafter."""
    if name == "draft":
        return "draft: on machines of its own. For a large target whose GPUs are busy: it drafts while they verify."
    return f"{name}: in the target. No network, no other machine. For one GPU, one CPU, or a pool that is far away."


def _show(client: InferenceClient, prompt: Prompt, options: GenerateOptions, console: Console) -> None:
    console.print(f"\n[bold]{prompt.text}[/]", soft_wrap=True)
    if console.is_terminal:
        console.print(legend())
    render(
        client.generate((ChatMessage("user", prompt.text),), options, timeout_s=TIMEOUT_S), console, client.detokenize
    )
