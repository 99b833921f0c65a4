"""`pilotfish demo`: the same prompts plain and speculative, side by side. `make demo` runs it."""

from __future__ import annotations

import asyncio
from typing import Any

import typer
from rich.console import Console

from pilotfish.cli.commands.up import pull_models, run_services
from pilotfish.cli.comparison import Comparison, comparison_table, verdict
from pilotfish.cli.console import output_console
from pilotfish.cli.errors import EXIT_INTERRUPTED, fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.cli.preflight import find_running, require_free
from pilotfish.cli.rendering import legend, render
from pilotfish.cli.service_lines import Printer
from pilotfish.client.answer import Chunk, GenerateOptions, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config, load_config
from pilotfish.errors import InternalError
from pilotfish.types import ChatMessage

MAX_TOKENS = 96
TIMEOUT_S = 300.0
WARM_UP = "Say hello."
WARM_UP_TOKENS = 8
NUM_REPEATS = 3

REWRITE = (
    "Correct the spelling and repeat the whole text: The litle fish swims ahead of the shark. The litle fish looks "
    "around every rock, and the shark decides where to go. When the litle fish is right, the shark follows at once. "
    "When the litle fish is wrong, the shark turns, and the litle fish swims ahead of the shark again."
)
PROMPTS = {"repeating": REWRITE, "ordinary": "Why is the sky blue? Answer in three sentences."}


@fail_on_error()
def demo(config_file: ConfigFile = None, overrides: Overrides = None) -> None:
    """Start the services if none run, answer two prompts plainly and with drafts, and compare."""
    config = load_config(config_file, overrides or ())
    console = output_console()
    address = f"{config.orchestrator.host}:{config.orchestrator.port}"
    running = find_running(address)
    if running is not None:
        console.print(f"Using what already serves {running.model_id} on {address}.")
        compare(address, console)
        return
    require_free(config.orchestrator.host, config.orchestrator.port)
    pull_models(config)
    console.print("Starting the three services under Ray Serve on this machine ...")
    asyncio.run(_start_and_compare(config, console))


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
            comparison = asyncio.create_task(asyncio.to_thread(compare, address.result(), console))
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


def compare(address: str, console: Console) -> None:
    """Answer every prompt plainly and with drafts, and print the figures."""
    with InferenceClient(address) as client:
        # The first answers pay for what is built on first use, and the first of two for the prefill:
        # here neither of the two that are compared is the first.
        for prompt in (WARM_UP, *PROMPTS.values()):
            for mode in ("off", "on"):
                _answer(client, prompt, mode, max_tokens=WARM_UP_TOKENS)
        comparisons = [_compare(client, name, prompt, console) for name, prompt in PROMPTS.items()]
    console.print()
    console.print(comparison_table(comparisons))
    for comparison in comparisons:
        console.print(verdict(comparison), soft_wrap=True)


def _compare(client: InferenceClient, name: str, prompt: str, console: Console) -> Comparison:
    """Stream the first answer, then repeat it in both ways."""
    console.print(f"\n[bold]{prompt}[/]", soft_wrap=True)
    if console.is_terminal:
        console.print(legend())
    answer = client.generate(_chat(prompt), _options("on"), timeout_s=TIMEOUT_S)
    texts: set[str] = set()
    summaries: dict[str, list[Summary]] = {"on": [], "off": []}
    text, summary = render(answer, console, client.detokenize)
    texts.add(text)
    summaries["on"].append(summary)
    for mode in ("off", *("on", "off") * (NUM_REPEATS - 1)):
        text, summary = _answer(client, prompt, mode)
        texts.add(text)
        summaries[mode].append(summary)
    return Comparison(name, tuple(summaries["off"]), tuple(summaries["on"]), identical=len(texts) == 1)


def _chat(prompt: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", content=prompt),)


def _options(mode: str, max_tokens: int = MAX_TOKENS) -> GenerateOptions:
    return GenerateOptions(max_tokens=max_tokens, temperature=0, speculation=mode)


def _answer(client: InferenceClient, prompt: str, mode: str, max_tokens: int = MAX_TOKENS) -> tuple[str, Summary]:
    messages = list(client.generate(_chat(prompt), _options(mode, max_tokens), timeout_s=TIMEOUT_S))
    text = "".join(message.text for message in messages if isinstance(message, Chunk))
    for message in messages:
        if isinstance(message, Summary):
            return text, message
    raise InternalError("the answer broke off before its summary")
