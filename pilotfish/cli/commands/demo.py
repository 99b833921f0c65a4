"""`pilotfish demo`: the same prompts plain and with drafts, side by side, then an emulated 70B. `make demo` runs it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import typer
from rich.console import Console

from pilotfish.bench.suite import started_info
from pilotfish.chat import ChatMessage
from pilotfish.cli.commands.serve import pull_models, run_services
from pilotfish.cli.comparison import Comparison, comparison_table, verdict
from pilotfish.cli.console import output_console
from pilotfish.cli.errors import EXIT_INTERRUPTED, fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.cli.preflight import find_running, require_free
from pilotfish.cli.rendering import legend, render
from pilotfish.cli.service_lines import Printer
from pilotfish.client.answer import Chunk, GenerateOptions, ServiceInfo, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config, EmulationConfig, load_config
from pilotfish.errors import InternalError
from pilotfish.launch.local_stack import LocalStack

MAX_TOKENS = 96
TIMEOUT_S = 300.0
WARM_UP = "Say hello."
WARM_UP_TOKENS = 8
NUM_REPEATS = 3
EMULATED_PROFILE = "a100-70b"
EMULATED_TOKENS = 384
"""Of an answer: with NUM_REPEATS, some ten seconds."""

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
PROMPTS = {"repeating": REWRITE, "ordinary": "Why is the sky blue? Answer in three sentences.", "passage": PASSAGE}
EMULATED_PROMPTS = {"70B": "The words of an emulated engine mean nothing."}


@fail_on_error()
def demo(config_file: ConfigFile = None, overrides: Overrides = None) -> None:
    """Start the services if none run, answer three prompts plainly and with drafts, and compare.

    Then the same on an emulated 70B, whose engines only take the time of the hardware.
    """
    config = load_config(config_file, overrides or ())
    # The prompts are repeated: drafts from earlier answers to them would flatter it.
    config = dataclasses.replace(config, draft=dataclasses.replace(config.draft, suffix_shared_tokens=0))
    console = output_console()
    address = f"{config.orchestrator.host}:{config.orchestrator.port}"
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


def compare(address: str, console: Console, started: Config | None, prompts: dict[str, str], max_tokens: int) -> None:
    """Answer every prompt in every way that is served there, and print the figures.

    started: the configuration of services that have just started; None: they have run before.
    """
    with InferenceClient(address) as client:
        ways = _ways(started_info(client, started))
        # The first answers pay for what is built on first use, and the first of several for the prefill:
        # here none of those that are compared is the first.
        for prompt in (WARM_UP, *prompts.values()):
            for options in ways.values():
                _answer(client, prompt, dataclasses.replace(options, max_tokens=WARM_UP_TOKENS))
        comparisons = []
        for name, prompt in prompts.items():
            if not (started and started.emulation.is_on):
                _show(client, prompt, dataclasses.replace([*ways.values()][-1], max_tokens=max_tokens), console)
            comparisons.append(_compare(client, name, prompt, ways, max_tokens))
    console.print()
    console.print(comparison_table(comparisons))
    console.print(verdict(comparisons), soft_wrap=True)


def _ways(info: ServiceInfo) -> dict[str, GenerateOptions]:
    """How to answer, by where drafts come from; plainly first, with the default drafter last."""
    ways = {"": GenerateOptions(temperature=0, speculation="off")}
    if info.num_draft_replicas:
        ways["draft service"] = GenerateOptions(temperature=0, speculation="on", proposer="draft")
    if info.drafter:
        ways["target"] = GenerateOptions(temperature=0, speculation="on", proposer=info.drafter)
    return ways


def _show(client: InferenceClient, prompt: str, options: GenerateOptions, console: Console) -> None:
    console.print(f"\n[bold]{prompt}[/]", soft_wrap=True)
    if console.is_terminal:
        console.print(legend())
    render(client.generate(_chat(prompt), options, timeout_s=TIMEOUT_S), console, client.detokenize)


def _compare(
    client: InferenceClient, name: str, prompt: str, ways: dict[str, GenerateOptions], max_tokens: int
) -> Comparison:
    texts: set[str] = set()
    summaries: dict[str, list[Summary]] = {way: [] for way in ways}
    for _ in range(NUM_REPEATS):
        for way, options in ways.items():
            text, summary = _answer(client, prompt, dataclasses.replace(options, max_tokens=max_tokens))
            texts.add(text)
            summaries[way].append(summary)
    plain = summaries.pop("")
    return Comparison(name, plain, summaries, identical=len(texts) == 1)


def _chat(prompt: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", content=prompt),)


def _answer(client: InferenceClient, prompt: str, options: GenerateOptions) -> tuple[str, Summary]:
    messages = list(client.generate(_chat(prompt), options, timeout_s=TIMEOUT_S))
    text = "".join(message.text for message in messages if isinstance(message, Chunk))
    for message in messages:
        if isinstance(message, Summary):
            return text, message
    raise InternalError("the answer broke off before its summary")
