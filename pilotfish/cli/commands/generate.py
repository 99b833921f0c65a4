"""`pilotfish generate`: one answer."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import msgspec
import typer

from pilotfish.chat import ChatMessage
from pilotfish.cli.console import error_console, output_console, shows_colours
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import DEFAULT_ADDRESS, Address, AsJson, NoColor, Timeout
from pilotfish.cli.rendering import legend, render, statistics_table
from pilotfish.client.access import Access
from pilotfish.client.answer import Chunk, GenerateOptions, Prompt, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.errors import InternalError, InvalidRequestError
from pilotfish.types import AcceptanceMode

DEFAULT_TIMEOUT_S = 600.0

Level = Literal["token", "step"]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", "-n", help="Maximum output tokens.", min=1)]
Temperature = Annotated[float | None, typer.Option("--temperature", "-t", help="0 is greedy.")]
SpeculationOption = Annotated[
    Literal["auto", "on", "off"], typer.Option("--speculation", "-s", help="When to use drafts.")
]
NumSpeculativeTokens = Annotated[
    int | None, typer.Option("--num-speculative-tokens", "-k", help="Draft tokens per round.", min=1)
]
Proposer = Annotated[
    str,
    typer.Option(
        "--proposer", help="auto, draft (the draft service), ngram or suffix (lookups), eagle3, medusa or early_exit."
    ),
]
StepJudge = Annotated[
    Literal["score", "logprob"],
    typer.Option("--step-judge", help="How the target judges steps: by a score, or by log-probability."),
]
StepThreshold = Annotated[
    float | None,
    typer.Option("--step-threshold", help="Least mark of an accepted step; default: score 7 or log-probability -1."),
]
System = Annotated[str | None, typer.Option("--system", help="System message.")]


@fail_on_error()
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads standard input.")],
    address: Address = DEFAULT_ADDRESS,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Nucleus sampling.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="0 keeps all tokens.", min=0)] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same answer.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Stop before this text; repeatable.")] = None,
    speculation: SpeculationOption = "auto",
    num_speculative_tokens: NumSpeculativeTokens = None,
    proposer: Proposer = "",
    acceptance: Annotated[
        Literal["coupled", "rejection", "typical", "tolerance"],
        typer.Option("--acceptance", help="Rule above temperature 0; the last two are lossy."),
    ] = "coupled",
    level: Annotated[
        Level, typer.Option("--level", help="step: the draft model writes whole steps of reasoning; lossy.")
    ] = "token",
    step_judge: StepJudge = "score",
    step_threshold: StepThreshold = None,
    no_learn: Annotated[bool, typer.Option("--no-learn", help="Nothing of it is kept to train the drafter.")] = False,
    system: System = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without a chat template.")] = False,
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    no_color: NoColor = False,
) -> None:
    """Stream an answer, coloured by the origin of its tokens, and report what speculation did.

    The answer goes to standard output, everything else to standard error.

    [bold]Examples[/]

      pilotfish generate "Why is the sky blue?"

      pilotfish generate - --temperature 0 < question.txt > answer.txt

      pilotfish generate "Once upon a time" --raw --max-tokens 64 --seed 7 --speculation off

      pilotfish generate "Name a fish." --proposer suffix --num-speculative-tokens 8 --json
    """
    options = GenerateOptions(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=tuple(stop or ()),
        speculation=speculation,
        num_speculative_tokens=num_speculative_tokens,
        proposer=proposer,
        acceptance=AcceptanceMode[acceptance.upper()],
        level=level,
        step_judge=step_judge,
        step_threshold=step_threshold,
        learn=False if no_learn else None,
    )
    request = to_prompt(read_standard_input() if prompt == "-" else prompt, system=system, raw=raw)
    with InferenceClient(address, access=Access.from_environment()) as client:
        answer = client.generate(request, options, timeout_s=timeout)
        if as_json:
            print(answer_json(list(answer)))
            return
        notes = error_console(no_color=no_color)
        if shows_colours(notes):
            notes.print(legend())
        _, summary = render(answer, output_console(no_color=no_color), client.detokenize)
        notes.print(statistics_table(summary))


def read_standard_input() -> str:
    """All of it. Raises InvalidRequestError if it is closed or no text."""
    if sys.stdin is None:  # closed by the caller
        raise InvalidRequestError("the prompt - reads standard input, which is closed")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"standard input is not text: {error.reason}") from None


def to_prompt(text: str, *, system: str | None, raw: bool) -> Prompt:
    """The request's prompt. Raises InvalidRequestError for no text, or a system message without a template."""
    try:
        (text + (system or "")).encode()
    except UnicodeEncodeError:
        # Bytes of arguments and of standard input that are no text come as surrogates.
        raise InvalidRequestError("the prompt is not text: it has bytes that the terminal's encoding lacks") from None
    if raw:
        if system is not None:
            raise InvalidRequestError("--system needs the chat template, which --raw leaves out")
        return text
    user = ChatMessage(role="user", content=text)
    return (user,) if system is None else (ChatMessage(role="system", content=system), user)


def answer_json(answer: list[Chunk | Summary]) -> str:
    """The whole answer as one JSON object: text, token_ids, origins and the summary's fields."""
    chunks = [message for message in answer if isinstance(message, Chunk)]
    summaries = [message for message in answer if isinstance(message, Summary)]
    if len(summaries) != 1:
        raise InternalError("the answer broke off before its summary")
    (summary,) = summaries
    values = {
        "text": "".join(chunk.text for chunk in chunks),
        "token_ids": [token_id for chunk in chunks for token_id in chunk.token_ids],
        "origins": [origin.name.lower() for chunk in chunks for origin in chunk.origins],
        **msgspec.to_builtins(summary),
        "finish_reason": summary.finish_reason.name.lower(),
        "tokens_per_s": summary.tokens_per_s,
    }
    return json.dumps(values, ensure_ascii=False)
