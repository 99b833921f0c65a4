"""Which tools are offered, and how many calls an answer has."""

import json
from typing import Any

import httpx
import pytest

from tests.support.stack import StackThread

ASKED = {"role": "user", "content": "which fish?"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}
FUNCTION = {"name": "find", "parameters": SCHEMA}
TOOLS = {
    "chat/completions": {"type": "function", "function": FUNCTION},
    "responses": {"type": "function", **FUNCTION},
}
OTHERS = {
    "chat/completions": [{"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}],
    "responses": [
        {"type": "web_search", "search_context_size": "low", "filters": {"allowed_domains": ["a.example"]}},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
        {"type": "mcp", "server_label": "x", "server_url": "https://x.example", "require_approval": "never"},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "ranking_options": {"score_threshold": 0.5}},
        {"type": "local_shell"},
    ],
}
_CALL = '<tool_call>{"name": "find", "arguments": %s}</tool_call>'
TWO = _CALL % '{"n": 1}' + _CALL % "{}"
"""An answer of two calls, as a model may write it."""


def post(server: StackThread, route: str, **fields: Any) -> httpx.Response:
    own = (
        {"messages": [ASKED], "max_tokens": 250}
        if route == "chat/completions"
        else {"input": [ASKED], "max_output_tokens": 250}
    )
    return server.http.post(f"/v1/{route}", json={**own, **fields})


def calls_of(answer: httpx.Response) -> list[tuple[str, str]]:
    """(name, arguments) of each, whole or streamed."""
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        body = answer.json()
        if "output" in body:
            return [(item["name"], item["arguments"]) for item in body["output"] if item["type"] == "function_call"]
        functions = [call["function"] for call in body["choices"][0]["message"].get("tool_calls", ())]
        return [(function["name"], function["arguments"]) for function in functions]
    events = [json.loads(each.partition("data: ")[2]) for each in answer.text.split("\n\n")[:-2]]
    if "response" in events[-1]:
        items = [item for item in events[-1]["response"]["output"] if item["type"] == "function_call"]
        assert sum(event["type"] == "response.function_call_arguments.done" for event in events) == len(items)
        return [(item["name"], item["arguments"]) for item in items]
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for piece in (piece for event in events for piece in event["choices"][0]["delta"].get("tool_calls", ())):
        names[piece["index"]] = piece["function"].get("name") or names[piece["index"]]
        arguments[piece["index"]] = arguments.get(piece["index"], "") + piece["function"]["arguments"]
    return [(names[index], arguments[index]) for index in sorted(names)]


@pytest.mark.parametrize("route", TOOLS)
def test_tools_of_other_kinds_are_left_out_and_named(real_server: StackThread, route: str) -> None:
    tools = [*OTHERS[route], TOOLS[route]]
    answer = post(real_server, route, tools=tools, tool_choice="required", parallel_tool_calls=False)
    ((name, _),) = calls_of(answer)
    assert name == "find"
    named = answer.headers["x-pilotfish-ignored-fields"].split(", ")
    assert named == [f"tools.{tool['type']} (only those of type function are served)" for tool in OTHERS[route]]
    if route == "responses":
        assert answer.json()["tools"] == [TOOLS[route]]
    alone = post(real_server, route, tools=OTHERS[route])
    assert (alone.status_code, calls_of(alone)) == (200, [])
    bare = post(real_server, route)
    usage = [each.json()["usage"] for each in (alone, bare)]
    key = "input_tokens" if route == "responses" else "prompt_tokens"
    assert usage[0][key] == usage[1][key]


@pytest.mark.parametrize("route", TOOLS)
@pytest.mark.parametrize("has_function", [True, False])
def test_a_choice_of_what_is_left_out_is_refused(real_server: StackThread, route: str, has_function: bool) -> None:
    tools = [*OTHERS[route], *([TOOLS[route]] if has_function else [])]
    custom = {"type": "custom", "custom": {"name": "patch"}}
    choices = [{"type": "custom", "name": "patch"}, {"type": "web_search"}] if route == "responses" else [custom]
    for choice in [*choices, *([] if has_function else ["required"])]:
        answer = post(real_server, route, tools=tools, tool_choice=choice)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "tool_choice")
        assert "function" in error["message"]


def test_strict_fields_refuse_tools_of_other_kinds(start_server) -> None:
    with start_server(http={"strict_fields": True}) as server:
        for route, others in OTHERS.items():
            answer = post(server, route, tools=[TOOLS[route], others[0]])
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[1].type")


@pytest.mark.parametrize("route", TOOLS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["off", "on"])
def test_an_answer_without_parallel_calls_has_one(
    real_server: StackThread, route: str, stream: bool, mode: str
) -> None:
    """The format lets the answer be these two calls, and the bias keeps it from the calls that `auto` allows beside."""
    (line_end,) = real_server.http.post("/tokenize", json={"prompt": "\n"}).json()["tokens"]
    fields = {
        "tools": [TOOLS[route]],
        "stream": stream,
        "structured_outputs": {"choice": [TWO]},
        "logit_bias": {str(line_end): -100},
        "speculation": {"mode": mode, "proposer": "ngram"},
    }
    assert calls_of(post(real_server, route, **fields)) == [("find", '{"n": 1}'), ("find", "{}")]
    for choice in ({}, {"tool_choice": "auto"}):
        one = post(real_server, route, parallel_tool_calls=False, **choice, **fields)
        assert calls_of(one) == [("find", '{"n": 1}')]


@pytest.mark.parametrize("route", TOOLS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_demanded_call_is_one(real_server: StackThread, route: str, stream: bool) -> None:
    named = {"type": "function", "name": "find"} if route == "responses" else None
    named = named or {"type": "function", "function": {"name": "find"}}
    for choice in ("required", named):
        fields = {"tools": [TOOLS[route]], "tool_choice": choice, "parallel_tool_calls": False, "stream": stream}
        assert len(calls_of(post(real_server, route, **fields))) == 1


@pytest.mark.parametrize("route", TOOLS)
@pytest.mark.parametrize("stream", [False, True])
def test_of_a_demanded_call_that_is_cut_off_before_its_name_nothing_is_said(
    real_server: StackThread, route: str, stream: bool
) -> None:
    limit = "max_output_tokens" if route == "responses" else "max_tokens"
    fields = {"tools": [TOOLS[route]], "tool_choice": "required", "stream": stream, limit: 12}
    answer = post(real_server, route, **fields)
    assert answer.status_code == 200
    assert "tool_call>" not in answer.text
    assert ("incomplete" if route == "responses" else '"finish_reason":"length"') in answer.text


def test_a_chat_with_tools_is_tokenised_as_it_is_answered(real_server: StackThread) -> None:
    fields = {"messages": [ASKED], "tools": [TOOLS["chat/completions"]]}
    answer = post(real_server, "chat/completions", return_token_ids=True, **fields).json()
    assert real_server.http.post("/tokenize", json=fields).json()["tokens"] == answer["prompt_token_ids"]


@pytest.mark.parametrize("route", TOOLS)
def test_a_call_is_of_a_tool_that_is_allowed(real_server: StackThread, route: str) -> None:
    tools = [TOOLS[route], json.loads(json.dumps(TOOLS[route]).replace("find", "seek"))]
    names = [{"type": "function", **({"name": "seek"} if route == "responses" else {"function": {"name": "seek"}})}]
    allowed = {"mode": "required", "tools": [*names, {"type": "mcp", "server_label": "x"}]}
    choice = {"type": "allowed_tools", **(allowed if route == "responses" else {"allowed_tools": allowed})}
    answer = post(real_server, route, tools=tools, tool_choice=choice, parallel_tool_calls=False)
    ((name, _),) = calls_of(answer)
    assert name == "seek"
    if route == "responses":
        assert (answer.json()["tools"], answer.json()["tool_choice"]) == (tools, {**choice, "tools": names})
