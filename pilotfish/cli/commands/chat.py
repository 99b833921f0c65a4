"""`pilotfish chat`: a conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial

from rich.console import Console
from rich.text import Text

from pilotfish.chat import ChatMessage
from pilotfish.cli.commands.generate import (
    DEFAULT_TIMEOUT_S,
    MaxTokens,
    NumSpeculativeTokens,
    Proposer,
    SpeculationOption,
    System,
    Temperature,
    answer_json,
)
from pilotfish.cli.console import error_console, output_console, shows_colours
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import DEFAULT_ADDRESS, Address, AsJson, NoColor, Timeout
from pilotfish.cli.rendering import legend, render, statistics_table
from pilotfish.client.access import Access
from pilotfish.client.answer import Chunk, GenerateOptions, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.errors import InvalidRequestError, PilotfishError

Show = Callable[[Iterable[Chunk | Summary]], tuple[str, Summary]]
"""Shows an answer as it comes; its text and summary."""
HELP = "/stats how the last answer came about · /reset a new conversation · /quit"


@fail_on_error()
def chat(
    address: Address = DEFAULT_ADDRESS,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    speculation: SpeculationOption = "auto",
    num_speculative_tokens: NumSpeculativeTokens = None,
    proposer: Proposer = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    no_color: NoColor = False,
) -> None:
    """Talk with the model; each turn reuses the cached prefix of the ones before.

    Commands: /stats, /reset, /quit. Ctrl-C ends an answer, and at the prompt the chat.

    With --json each answer is one object on a line, and all else goes to standard error.

    [bold]Examples[/]

      pilotfish chat --system "Answer in one sentence."

      pilotfish chat --address server:50051 --temperature 0.7

      pilotfish chat --json < questions.txt > answers.jsonl
    """
    options = GenerateOptions(
        max_tokens=max_tokens,
        temperature=temperature,
        speculation=speculation,
        num_speculative_tokens=num_speculative_tokens,
        proposer=proposer,
    )
    if sys.stdin is None:  # closed by the caller
        raise InvalidRequestError("a chat reads standard input, which is closed; `pilotfish generate` takes one prompt")
    console = error_console(no_color=no_color) if as_json else output_console(no_color=no_color)
    with InferenceClient(address, access=Access.from_environment()) as client:
        console.print(f"[bold]{client.info().model_id}[/] · {HELP}", soft_wrap=True)
        if shows_colours(console):
            console.print(legend())
        show = print_json if as_json else partial(render, console=console, detokenize=client.detokenize)
        Conversation(client, console, options, show, system=system, timeout_s=timeout).run()


class Conversation:
    """The turns so far and the loop that adds to them."""

    def __init__(
        self,
        client: InferenceClient,
        console: Console,
        options: GenerateOptions,
        show: Show,
        *,
        system: str | None,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._console = console
        self._options = options
        self._show = show
        self._timeout_s = timeout_s
        self._preamble = () if system is None else (ChatMessage(role="system", content=system),)
        self._messages: tuple[ChatMessage, ...] = self._preamble
        self._summary: Summary | None = None

    def run(self) -> None:
        """Read and answer until /quit or end of input."""
        while True:
            try:
                line = self._console.input("[bold]> [/]").strip()
            except EOFError:
                self._console.print()
                return
            if line == "/quit":
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._turn(line)

    def _command(self, line: str) -> None:
        if line == "/reset":
            self._messages = self._preamble
            self._summary = None
            self._console.print("[dim]a new conversation[/]")
        elif line == "/stats":
            self._console.print(statistics_table(self._summary) if self._summary else "[dim]no answer yet[/]")
        else:
            self._console.print(Text(f"no such command: {line} ({HELP})", style="red"))

    def _turn(self, line: str) -> None:
        """Answer one line. A failed or interrupted turn leaves the conversation as it was."""
        messages = (*self._messages, ChatMessage(role="user", content=line))
        answer = self._client.generate(messages, self._options, timeout_s=self._timeout_s)
        try:
            text, self._summary = self._show(answer)
        except PilotfishError as error:
            self._console.print(Text(f"error: {error}", style="red"))
            return
        except KeyboardInterrupt:
            self._console.print("\n[dim]interrupted; this turn is forgotten[/]")
            return
        self._messages = (*messages, ChatMessage(role="assistant", content=text))
        self._console.print(f"[dim]{brief(self._summary)}[/]", soft_wrap=True)


def print_json(answer: Iterable[Chunk | Summary]) -> tuple[str, Summary]:
    """A `Show`: one object on one line."""
    messages = list(answer)
    print(answer_json(messages), flush=True)
    *_, summary = (message for message in messages if isinstance(message, Summary))
    return "".join(message.text for message in messages if isinstance(message, Chunk)), summary


def brief(summary: Summary) -> str:
    """One line about an answer."""
    parts = [
        f"{summary.num_cached_tokens} of {summary.num_prompt_tokens} prompt tokens from the cache",
        f"first token {summary.time_to_first_token_s * 1e3:.0f} ms",
        f"{summary.tokens_per_s:.1f} tokens/s",
    ]
    if summary.speculation.num_rounds:
        parts.append(f"{summary.speculation.mean_acceptance_length:.2f} tokens a round")
    return " · ".join(parts)
