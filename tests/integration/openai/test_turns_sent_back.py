"""What this server answered is taken when it comes back in the next request: thoughts, calls, and what was cut off."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.openai.conftest import client, tiny_server
from tests.support.stack import StackThread

ASKED = {"role": "user", "content": "which fish?"}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:{{ m['name'] }}{{ m['reasoning_content'] }}{{ m['content'] }}"
    "{% for c in m['tool_calls'] %}{% set f = c['function'] %}{{ f['name'] }}={{ f['arguments'] | tojson }}"
    "{% if f['arguments'] is mapping %}{% for n, v in f['arguments'].items() %}{{ n }}:{{ v }}{% endfor %}{% endif %}"
    "{% endfor %}|{% endfor %}"
    "{# <tool_call> </think> #}{{ tools }}{% if add_generation_prompt %}assistant:{{ begun }}{% endif %}"
)
"""Knows tools, names and thoughts, and goes through a call's arguments one by one, as many do."""
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}
FUNCTION = {"name": "find", "parameters": SCHEMA}
CALL_BEGIN = '<tool_call>\n{"name": "find", "arguments": '


@pytest.fixture(scope="module")
def server(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackThread]:
    folder = tmp_path_factory.mktemp("calling") / "tiny"
    shutil.copytree(target_folder, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    tokenizer = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer.replace('"~"', '"\u010a"'))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


@pytest.fixture(scope="module")
def api(server: StackThread) -> openai.OpenAI:
    return client(server)


def prompt_of(server: StackThread, messages: list[dict[str, Any]]) -> str:
    """What the template makes of them."""
    tokens = server.http.post("/tokenize", json={"messages": messages})
    assert tokens.status_code == 200, tokens.text
    return server.http.post("/detokenize", json={"tokens": tokens.json()["tokens"]}).json()["prompt"]


@pytest.mark.parametrize("num_tokens", [len(CALL_BEGIN) + more for more in (1, 4, 6)])
def test_a_call_that_was_cut_off_is_taken(api: openai.OpenAI, num_tokens: int) -> None:
    tools = [{"type": "function", "function": FUNCTION}]
    call = {"tools": tools, "tool_choice": "required", "temperature": 0}
    choice = api.chat.completions.create(model="", messages=[ASKED], max_tokens=num_tokens, **call).choices[0]
    assert choice.finish_reason == "length"
    (made,) = choice.message.tool_calls or ()
    result = {"role": "tool", "tool_call_id": made.id, "content": "cut off"}
    messages = [ASKED, choice.message, result]
    assert api.chat.completions.create(model="", messages=messages, tools=tools, max_tokens=2).choices

    tools = [{"type": "function", **FUNCTION}]
    call = {"tools": tools, "tool_choice": "required", "temperature": 0}
    response = api.responses.create(model="", input=[ASKED], max_output_tokens=num_tokens, **call)
    (made,) = response.output
    assert (made.type, made.status) == ("function_call", "incomplete")
    output = {"type": "function_call_output", "call_id": made.call_id, "output": "cut off"}
    conversation = [ASKED, *response.output, output]
    assert api.responses.create(model="", input=conversation, tools=tools, max_output_tokens=2).output


@pytest.mark.parametrize("arguments", ["", "{", '{"n": nonsense}', '{"n": 1', '{"n": NaN}', "x", "[1]", "[1"])
def test_what_a_model_may_write_for_arguments_is_taken(server: StackThread, arguments: str) -> None:
    function = {"name": "find", "arguments": arguments}
    turn = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    chat = {"messages": [ASKED, turn], "max_tokens": 1}
    response = {"input": [ASKED, {"type": "function_call", "call_id": "c", **function}], "max_output_tokens": 1}
    answers = [
        server.http.post(f"/v1/{path}", json=body)
        for path, body in (("chat/completions", chat), ("responses", response))
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["usage"]["prompt_tokens"] == answers[1].json()["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("given", "written"),
    [({"n": 1, "deep": {"x": [0.1, 1e400, "\u00e9"]}}, None), ({}, None), (None, "{}"), (..., "{}")],
    ids=["object", "empty", "null", "left out"],
)
def test_arguments_that_are_an_object_or_none_are_taken(server: StackThread, given: Any, written: str | None) -> None:
    def num_tokens(function: dict[str, Any]) -> tuple[int, int]:
        call = {"id": "c", "type": "function", "function": function}
        chat = {"messages": [ASKED, {"role": "assistant", "tool_calls": [call]}], "max_tokens": 1}
        items = [ASKED, {"type": "function_call", "call_id": "c", **function}]
        answers = [
            server.http.post(f"/v1/{path}", content=json.dumps(body).replace("Infinity", "1E+400"))
            for path, body in (("chat/completions", chat), ("responses", {"input": items, "max_output_tokens": 1}))
        ]
        assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
        return answers[0].json()["usage"]["prompt_tokens"], answers[1].json()["usage"]["input_tokens"]

    text = json.dumps(given, ensure_ascii=False).replace("Infinity", "1E+400") if written is None else written
    as_text = num_tokens({"name": "find", "arguments": text})
    assert num_tokens({"name": "find", **({} if given is ... else {"arguments": given})}) == as_text


@pytest.mark.parametrize("is_told", [True, False])
def test_a_turn_of_nothing_but_thoughts_is_taken(server: StackThread, is_told: bool) -> None:
    body = {"messages": [ASKED], "max_tokens": 8, "include_reasoning": is_told}
    begun = {"chat_template_kwargs": {"begun": "<think>"}}
    message = server.http.post("/v1/chat/completions", json={**body, **begun}).json()["choices"][0]["message"]
    assert (message["content"], "reasoning" in message) == (None, is_told)
    again = server.http.post("/v1/chat/completions", json={"messages": [ASKED, message, ASKED], "max_tokens": 2})
    assert again.status_code == 200, again.text


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_thoughts_without_words_reach_the_template(server: StackThread, name: str, content: dict[str, None]) -> None:
    turn = {"role": "assistant", name: "(so)", **content}
    assert prompt_of(server, [ASKED, turn, ASKED]) == "user:which fish?|assistant:(so)|user:which fish?|Noneassistant:"


def test_a_turn_without_words_and_a_tool_without_a_result_are_taken(server: StackThread) -> None:
    call = {"type": "function", "id": "c", "function": {"name": "find", "arguments": "{}"}}
    turns = [{"role": "assistant", "content": None}, {"role": "assistant", "tool_calls": [call]}]
    chat = {"messages": [ASKED, *turns, {"role": "tool", "content": None, "tool_call_id": "c"}], "max_tokens": 1}
    items = [turns[0], {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}]
    output = {"type": "function_call_output", "call_id": "c", "output": None}
    answers = [
        server.http.post("/v1/chat/completions", json=chat),
        server.http.post("/v1/responses", json={"input": [ASKED, *items, output], "max_output_tokens": 1}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]


@pytest.mark.parametrize("role", ["user", "system"])
def test_others_say_something(server: StackThread, role: str) -> None:
    answer = server.http.post("/v1/chat/completions", json={"messages": [{"role": role, "content": None}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages[0].content")


THOUGHTS = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "(so)"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "find", "arguments": '{"n": 1}'}
WORDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a cod"}]}


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ([THOUGHTS], [{"reasoning": "(so)"}]),
        ([THOUGHTS, WORDS], [{"reasoning": "(so)", "content": "a cod"}]),
        ([THOUGHTS, CALL], [{"reasoning": "(so)", "tool_calls": ["c"]}]),
        ([THOUGHTS, THOUGHTS], [{"reasoning": "(so)\n(so)"}]),
        ([THOUGHTS, THOUGHTS, WORDS], [{"reasoning": "(so)\n(so)", "content": "a cod"}]),
        ([THOUGHTS, THOUGHTS, CALL], [{"reasoning": "(so)\n(so)", "tool_calls": ["c"]}]),
        ([WORDS, CALL], [{"content": "a cod", "tool_calls": ["c"]}]),
        ([THOUGHTS, WORDS, CALL, CALL], [{"reasoning": "(so)", "content": "a cod", "tool_calls": ["c", "c"]}]),
    ],
)
@pytest.mark.parametrize("is_last", [True, False])
def test_a_responses_items_are_the_turns_of_a_chat(
    server: StackThread, items: list[dict[str, Any]], turns: list[dict[str, Any]], is_last: bool
) -> None:
    function = {"name": CALL["name"], "arguments": CALL["arguments"]}
    for turn in turns:
        turn["role"] = "assistant"
        if "tool_calls" in turn:
            turn["tool_calls"] = [{"type": "function", "id": "c", "function": function} for _ in turn["tool_calls"]]
    after = [] if is_last else [ASKED]
    body = {"input": [ASKED, *items, *after], "max_output_tokens": 1}
    response = server.http.post("/v1/responses", json=body).json()
    chat = {"messages": [ASKED, *turns, *after], "max_tokens": 1}
    assert (
        response["usage"]["input_tokens"]
        == server.http.post("/v1/chat/completions", json=chat).json()["usage"]["prompt_tokens"]
    )


def test_names_reach_a_template_that_reads_them(server: StackThread) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": " asks", "name": "ann"},
        {"role": "assistant", "content": "", "tool_calls": [call], "name": None},
        {"role": "tool", "content": " found", "tool_call_id": "c", "name": "find"},
    ]
    assert "user:ann asks|assistant:find={}|tool:find found|" in prompt_of(server, turns)
    answer = server.http.post("/v1/chat/completions", json={"messages": turns, "max_tokens": 1})
    assert "x-pilotfish-ignored-fields" not in answer.headers


def test_calls_without_ids_are_taken(server: StackThread) -> None:
    function = {"type": "function", "function": {"name": "find", "arguments": "{}"}}
    calls = [function, {**function, "id": None}]
    results = [{"role": "tool", "content": "cod"}, {"role": "tool", "content": "eel", "tool_call_id": None}]
    prompt = prompt_of(server, [ASKED, {"role": "assistant", "content": None, "tool_calls": calls}, *results])
    assert "find={}find={}|tool:cod|tool:eel|" in prompt


def test_the_summary_of_thoughts_stands_for_thoughts_that_are_not_there(server: StackThread) -> None:
    def num_tokens(**thoughts: object) -> int:
        items = [ASKED, {"type": "reasoning", "id": "rs", **thoughts}, {"role": "assistant", "content": "cod"}]
        answer = server.http.post("/v1/responses", json={"input": items, "max_output_tokens": 1})
        assert answer.status_code == 200, answer.text
        return answer.json()["usage"]["input_tokens"]

    summary = [{"type": "summary_text", "text": "(so)"}]
    thoughts = [{"type": "reasoning_text", "text": "(so)"}]
    none = num_tokens(summary=[], encrypted_content="x")
    assert num_tokens(summary=summary) == num_tokens(summary=summary, content=None) == none + 4
    assert num_tokens(summary=summary, content=thoughts) == num_tokens(summary=[], content=thoughts) == none + 4


def test_refusals_are_taken(server: StackThread) -> None:
    part = {"type": "refusal", "refusal": "No."}
    for turn in ({"content": [part]}, {"content": None, "refusal": "No."}):
        assert "|assistant:No.|" in prompt_of(server, [ASKED, {"role": "assistant", **turn}])
    items = [ASKED, {"type": "message", "role": "assistant", "content": [part]}]
    answer = server.http.post("/v1/responses", json={"input": items, "max_output_tokens": 1})
    assert answer.status_code == 200, answer.text
