from __future__ import annotations

import json

import msgspec
import pytest

from orchestrator.http.completions.answers import Finished, Sample
from orchestrator.http.completions.chat_format import ChatFormat
from orchestrator.http.completions.envelope import Envelope
from orchestrator.requests.prompt import ChatPrompt
from orchestrator.requests.request import GenerationOptions
from orchestrator.requests.tools.tool_use import tool_use
from pilotfish.models.tokens.tool_prompt import CALL_BEGIN, CALL_END
from pilotfish.types import FinishReason, SamplingParams
from tests.support.output import output_chunk, request_report

ENVELOPE = Envelope(id="chatcmpl-1", created=5, model="toy", system_fingerprint="fp_1")
SAMPLE = Sample(0, 0, ChatPrompt(()), GenerationOptions(sampling=SamplingParams()))
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
CALL = f'{CALL_BEGIN}{{"name": "find", "arguments": {{"what": "fish"}}}}{CALL_END}'

MARKED = f'{CALL_BEGIN}{{"name": "find", "arguments": {{"what": "</tool_call> <tool_call> \\"{{"}}}}{CALL_END}'


def events(chat: ChatFormat, *pieces: str, finish_reason: FinishReason = FinishReason.STOP) -> list[dict]:
    maker = chat.choice_events(SAMPLE)
    data = b"".join(maker.chunk(output_chunk(piece)) for piece in pieces[:-1])
    data += maker.end(output_chunk(pieces[-1], finish_reason), request_report(finish_reason))
    return [json.loads(event.removeprefix("data: ")) for event in data.decode().split("\n\n") if event]


def deltas(made: list[dict]) -> list[dict]:
    return [event["choices"][0]["delta"] for event in made]


def calls_of(made: list[dict]) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    for delta in deltas(made):
        for piece in delta.get("tool_calls", ()):
            function = piece["function"]
            if "id" in piece:
                assert (piece["type"], piece["index"], function["arguments"]) == ("function", len(calls), "")
                calls.append((function["name"], ""))
            else:
                assert (piece.keys(), function.keys()) == ({"index", "function"}, {"arguments"})
                name, arguments = calls[piece["index"]]
                calls[piece["index"]] = (name, arguments + function["arguments"])
        assert len(delta.get("tool_calls", ())) <= 1
    return calls


def test_who_speaks_the_words_and_the_end() -> None:
    made = events(ChatFormat(ENVELOPE, None), "a ", "", "fish")
    assert deltas(made) == [
        {"role": "assistant", "content": ""},
        {"content": "a "},
        {"content": "fish"},
        {},
    ]
    assert [event["choices"][0]["finish_reason"] for event in made] == [None, None, None, "stop"]
    assert made[-1]["choices"][0]["speculation"]["report"]["num_plain_tokens"] == 4
    assert all("usage" not in event for event in made)


def test_a_first_token_without_text_has_no_event_of_its_own() -> None:
    made = events(ChatFormat(ENVELOPE, None, echoed="so: "), "", "😀")
    assert deltas(made) == [{"role": "assistant", "content": "so: "}, {"content": "😀"}, {}]


@pytest.mark.parametrize(
    "text",
    [
        f"see:\n{CALL}\n{CALL} \n",
        f"\n{CALL}\nthen 😀\n{MARKED}",
        f"a {MARKED} b \n",
        f"<tool_call>{CALL}",
        "no call \n",
        '<tool_call>{"name": "find", "arguments": {"what": "</tool_call>',
    ],
)
def test_streamed_pieces_join_to_the_whole(text: str) -> None:
    chat = ChatFormat(ENVELOPE, None, tools=tool_use(TOOLS, "auto"))
    (choice,) = chat.document([Finished(SAMPLE, output_chunk(text), request_report())]).choices
    for size in (1, 2, 7, 1000):
        made = events(chat, *(text[start : start + size] for start in range(0, len(text), size)))
        assert "".join(delta.get("content") or "" for delta in deltas(made)) == (choice.message.content or "")
        calls = [] if choice.message.tool_calls is msgspec.UNSET else choice.message.tool_calls
        assert calls_of(made) == [(call.function.name, call.function.arguments) for call in calls]
        assert made[-1]["choices"][0]["finish_reason"] == choice.finish_reason


def test_a_named_function_ends_with_stop() -> None:
    named = {"type": "function", "function": {"name": "find"}}
    made = events(ChatFormat(ENVELOPE, None, tools=tool_use(TOOLS, named)), CALL)
    assert calls_of(made)
    assert made[-1]["choices"][0]["finish_reason"] == "stop"
