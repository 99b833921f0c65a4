"""Structured output and tools through OpenAI's own client, with speculation on and off."""

import json
import re
import urllib.request
from typing import Any

import openai
import pytest

from pilotfish.types import Grammar

MESSAGES = [{"role": "user", "content": "which fish?"}]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": SCHEMA}}]
NO_SCHEMA = {"type": "fish"}
COSTLY = {"structured_outputs": {"json": {"type": "integer", "multipleOf": 999983}}}
"""A grammar that takes too much to compile."""
_RULES = (
    f'r{rule}: r{(rule + 1) % 40} r{(rule + 2) % 40} | r{(rule + 3) % 40} r{(rule + 5) % 40} | "a"'
    for rule in range(40)
)
ENDLESS = {"structured_outputs": {"grammar": "\n".join(("start: r0", *_RULES))}}
"""A grammar so ambiguous that the library gives up after some tokens of an answer."""
BAD_TOOLS = [{"type": "function", "function": {"name": "find", "parameters": NO_SCHEMA}}]
BAD_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": NO_SCHEMA}}
FORMATS = {
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    "regex": {"extra_body": {"structured_outputs": {"regex": "(ab|cd){3}"}}},
    "choice": {"extra_body": {"structured_outputs": {"choice": ["shark", "gull"]}}},
}
VALID = {
    "json_schema": lambda text: set(json.loads(text)) == {"n", "ok"},
    "regex": lambda text: len(text) == 6 and set(text) <= set("abcd"),
    "choice": lambda text: text in ("shark", "gull"),
}


def ask(client: openai.OpenAI, mode: str, **options):
    body = {**options.pop("extra_body", {}), "speculation": {"mode": mode, "proposer": "ngram"}}
    return client.chat.completions.create(
        model="", messages=MESSAGES, extra_body=body, **{"seed": 3, "max_tokens": 120, **options}
    )


@pytest.mark.parametrize("name", FORMATS)
def test_the_answer_is_what_it_must_be(real_client: openai.OpenAI, name: str) -> None:
    choice = ask(real_client, "off", **FORMATS[name]).choices[0]
    assert choice.finish_reason == "stop"
    assert VALID[name](choice.message.content)
    assert ask(real_client, "on", **FORMATS[name]).choices[0].message.content == choice.message.content
    streamed = ask(real_client, "on", stream=True, **FORMATS[name])
    assert "".join(event.choices[0].delta.content or "" for event in streamed) == choice.message.content


@pytest.mark.parametrize(
    "options",
    [
        {"stop": ['"ok']},
        {"stop": ["k"], "extra_body": {"min_tokens": 9}},
        {"max_tokens": 5},
        {"logprobs": True, "top_logprobs": 2},
        {"extra_body": {"stop_token_ids": [90]}},
        {"temperature": 0.8, "frequency_penalty": 0.5},
    ],
)
def test_what_the_grammar_drafts_shows_in_no_answer(real_client: openai.OpenAI, options: dict[str, Any]) -> None:
    """Where a stop, a limit or log-probabilities fall within forced text."""
    plain, drafted = (
        ask(real_client, mode, **{"temperature": 0, **FORMATS["json_schema"], **options}).choices[0]
        for mode in ("off", "on")
    )
    assert (drafted.message.content, drafted.finish_reason) == (plain.message.content, plain.finish_reason)
    assert bool(drafted.logprobs) == bool(plain.logprobs)
    if plain.logprobs:
        tokens, expected = ([each.token for each in one.logprobs.content] for one in (drafted, plain))
        assert tokens == expected
        assert drafted.speculation["report"]["num_grammar_accepted_tokens"] > 0


@pytest.mark.parametrize("mode", ["on", "auto", "off"])
def test_what_the_grammar_drafted_is_told_and_counted(real_client: openai.OpenAI, mode: str) -> None:
    def counted() -> dict[str, float]:
        metrics = urllib.request.urlopen(str(real_client.base_url.join("/metrics"))).read().decode()
        found = re.findall(r"^pilotfish_spec_decode_num_grammar_(\w+)_tokens_total(?:{.*})? (\S+)$", metrics, re.M)
        return {name: float(value) for name, value in found}

    extra = {"speculation": {"mode": mode, "proposer": "ngram", "return_tokens": True}}
    before = counted()
    answer = real_client.chat.completions.create(
        model="", messages=MESSAGES, temperature=0, max_tokens=60, extra_body=extra, **FORMATS["json_schema"]
    )
    told = answer.choices[0].speculation
    report, origins = told["report"], told["tokens"]["origins"]
    assert report["num_grammar_accepted_tokens"] == origins.count("grammar")
    assert report["num_grammar_draft_tokens"] >= origins.count("grammar")
    assert (origins.count("grammar") > 0) == (mode != "off")
    grown = {name: value - before[name] for name, value in counted().items()}
    assert grown == {name: report[f"num_grammar_{name}_tokens"] for name in ("draft", "accepted")}


def test_a_call_or_else_a_document(real_client: openai.OpenAI) -> None:
    """With `auto` the model chooses: here the bias does, of what the first token may be."""
    tokens = {}
    for text in "<{":
        body = {"prompt": text}
        url = str(real_client.base_url.join("/tokenize"))
        (tokens[text],) = real_client.post(url, body=body, cast_to=object)["tokens"]
    for favourite, other in ("<{", "{<"):
        choices = [
            ask(
                real_client,
                mode,
                tools=TOOLS,
                parallel_tool_calls=False,
                logit_bias={tokens[favourite]: 100, tokens[other]: -100},
                temperature=0,
                **FORMATS["json_schema"],
            ).choices[0]
            for mode in ("off", "on")
        ]
        calls = [[call.function.arguments for call in choice.message.tool_calls or ()] for choice in choices]
        assert calls[0] == calls[1]
        assert choices[0].message.content == choices[1].message.content
        assert [choice.finish_reason for choice in choices] == ["tool_calls" if favourite == "<" else "stop"] * 2
        text = calls[0][0] if favourite == "<" else choices[0].message.content
        assert set(json.loads(text)) == {"n", "ok"}


def test_a_calls_arguments_are_streamed(real_client: openai.OpenAI) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0}
    (whole,) = ask(real_client, "off", **fields).choices[0].message.tool_calls
    deltas = [event.choices[0].delta for event in ask(real_client, "on", stream=True, **fields)]
    first, *pieces = [call for delta in deltas for call in delta.tool_calls or ()]
    assert (first.index, first.type, first.function.name, first.function.arguments) == (0, "function", "find", "")
    assert first.id.startswith("call_")
    assert {(piece.index, piece.id, piece.function.name) for piece in pieces} == {(0, None, None)}
    assert len(pieces) > 1
    assert "".join(piece.function.arguments for piece in pieces) == whole.function.arguments
    body = {"speculation": {"mode": "off"}}
    create = real_client.chat.completions.stream
    with create(model="", messages=MESSAGES, seed=3, max_tokens=120, extra_body=body, **fields) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert call.function.arguments == whole.function.arguments


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"response_format": BAD_FORMAT}, "response_format"),
        ({"tools": TOOLS, "response_format": BAD_FORMAT}, "response_format"),
        ({"tools": BAD_TOOLS, **FORMATS["json_schema"]}, "tools"),
        ({"tools": BAD_TOOLS, **FORMATS["json_schema"], "stream": True}, "tools"),
        ({"tools": BAD_TOOLS, "tool_choice": "required"}, "tools"),
        ({"extra_body": {"structured_outputs": {"regex": "("}}}, "structured_outputs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "extra_body": {"structured_outputs": {"json": "{"}}}, "structured_outputs"),
        ({"tools": TOOLS, "extra_body": {"structured_outputs": {"grammar": "start: }"}}}, "structured_outputs"),
    ],
)
def test_what_is_wrong_is_named(real_client: openai.OpenAI, options, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as failure:
        ask(real_client, "off", **options)
    assert failure.value.param == param


def integer(bound: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": bound, "maximum": bound}


UNSERVED = [
    *({"type": "object", "properties": {"n": integer(-bound)}} for bound in (2**63, 2**63 - 1, 10**29)),
    *({"const": sign * bound} for sign in (1, -1) for bound in (2**53 + 1, 2**64 + 1)),
    {"enum": ["a", {"b": [2**64 + 1]}]},
    {"$ref": "#"},
    {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}},
]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        *((schema, "response_format") for schema in UNSERVED),
        *((schema, place) for schema in UNSERVED[::8] for place in ("structured_outputs", "tools")),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused_at_once(real_client: openai.OpenAI, schema, place: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    options = {
        "response_format": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
        "structured_outputs": {"extra_body": {"structured_outputs": {"json": json.dumps(schema)}}},
        "tools": {"tools": [tool], "tool_choice": "required"},
    }[place]
    with pytest.raises(openai.BadRequestError) as failure:
        ask(real_client, "off", **options)
    assert failure.value.param == place
    assert "<state>" not in failure.value.message
    assert ask(real_client, "off", **FORMATS["json_schema"]).choices  # the service goes on


@pytest.fixture
def unchecked_server(real_server, monkeypatch: pytest.MonkeyPatch):
    """Its orchestrator vouches for every grammar, as one of another version may."""

    async def check(grammar: Grammar, client_id: str) -> float:
        return 0.0

    monkeypatch.setattr(real_server.orchestrator.service.grammar_check, "check", check)
    return real_server


def test_a_grammar_that_the_targets_compiler_dies_of_is_counted(unchecked_server, real_client: openai.OpenAI) -> None:
    def num_deaths() -> float:
        with urllib.request.urlopen(f"{unchecked_server.url}/metrics", timeout=30) as metrics:
            (line,) = (line for line in metrics if line.startswith(b"pilotfish_replica_grammar_compiler_deaths_total{"))
        return float(line.split()[-1])

    before = num_deaths()
    with pytest.raises(openai.BadRequestError, match="takes more than") as failure:
        ask(real_client, "off", extra_body=COSTLY)
    assert failure.value.param == "structured_outputs"
    assert num_deaths() == before + 1
    assert ask(real_client, "off", **FORMATS["json_schema"]).choices


def test_a_grammar_that_cannot_be_followed_to_the_end_is_named(real_client: openai.OpenAI) -> None:
    options = {"logit_bias": {0: -100}, "extra_body": ENDLESS}  # token 0 would end the answer before
    with pytest.raises(openai.BadRequestError, match="cannot be followed any further") as failure:
        ask(real_client, "off", **options)
    assert failure.value.param == "structured_outputs"
    events = ask(real_client, "on", stream=True, **options)
    assert next(events).choices  # so that what fails is a stream that has begun
    with pytest.raises(openai.APIError, match="cannot be followed any further") as broken_off:
        list(events)
    assert broken_off.value.param == "structured_outputs"
