"""Every failure in OpenAI's shape, with the parameter's name; OpenAI's own client raises its own kinds."""

import json
import urllib.error
import urllib.request
from typing import Any

import openai
import pytest

from pilotfish.errors import InvalidRequestError, PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.types import Grammar

CHAT = {"messages": [{"role": "user", "content": "sea"}], "max_tokens": 4}
COMPLETION = {"prompt": "sea", "max_tokens": 4}
PROMPT = {"prompt": "sea"}
UNSERVED = [
    (f"/v1/{path}", "POST", 404)
    for path in ("embeddings", "audio/speech", "audio/transcriptions", "images/generations", "moderations")
]


def post(url: str, path: str, body: bytes | dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"temperature": "hot"}, "temperature"),
        ("/v1/chat/completions", {"top_p": -0.1}, "top_p"),
        ("/v1/chat/completions", {"repetition_penalty": 0}, "repetition_penalty"),
        ("/v1/chat/completions", {"max_tokens": 0}, "max_tokens"),
        ("/v1/chat/completions", {"n": 0}, "n"),
        ("/v1/completions", {"repetition_penalty": 1e39}, "repetition_penalty"),
        ("/v1/chat/completions", {"seed": 2**64}, "seed"),
        ("/v1/chat/completions", {"logit_bias": {"5": 101}}, "logit_bias"),
        ("/v1/chat/completions", {"logit_bias": {"999999999": 1}}, "logit_bias"),
        ("/v1/chat/completions", {"stop": ["a"] * 17}, "stop"),
        ("/v1/chat/completions", {"stop_token_ids": [10**9]}, "stop_token_ids"),
        ("/v1/chat/completions", {"stop": ["a" * 513]}, "stop"),
        *(
            (path, {"input": "ab", name: entries} if "responses" in path else {name: entries}, name)
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses")
            for name, entries in (
                ("logit_bias", {str(token_id): 1 for token_id in range(1025)}),
                ("stop_token_ids", [5] * 1025),
                ("allowed_token_ids", [*range(1025)]),
                ("allowed_token_ids", []),
                ("allowed_token_ids", [-1]),
                ("allowed_token_ids", [10**9]),
                ("logit_bias", {"-1": 1}),
            )
        ),
        *(
            ("/v1/chat/completions", {"speculation": {name: -1}}, f"speculation.{name}")
            for name in ("typical_epsilon", "typical_delta", "tolerance_top_k", "tolerance_delta")
        ),
        (
            "/v1/chat/completions",
            {"allowed_token_ids": [5], "structured_outputs": {"regex": "a"}},
            "allowed_token_ids",
        ),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("/v1/chat/completions", {"stream_options": {"include_usage": True}}, "stream_options"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content",
        ),
        ("/v1/chat/completions", {"speculation": {"mode": "maybe"}}, "speculation.mode"),
        (
            "/v1/chat/completions",
            {"speculation": {"num_speculative_tokens": 1000}},
            "speculation.num_speculative_tokens",
        ),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": [10**9]}, "prompt"),
        ("/v1/completions", {"logprobs": 21}, "logprobs"),
        ("/tokenize", {"messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
    ],
)
def test_a_wrong_parameter_is_named(emulated_server, path: str, fields: dict[str, Any], param: str) -> None:
    bases = {"/v1/chat/completions": CHAT, "/v1/responses": {}, "/tokenize": {"prompt": "sea"}, "/detokenize": {}}
    base = bases.get(path, COMPLETION)
    status, body = post(emulated_server.url, path, {**base, **fields})
    assert (status, body["error"]["type"], body["error"]["param"]) == (400, "invalid_request_error", param)
    assert body["error"]["message"]


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"not": value}
    return value


def nested_call(depth: int) -> dict[str, Any]:
    arguments = '{"a":' * depth + "1" + "}" * depth
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}


@pytest.mark.parametrize("depth", [101, 20_000])
@pytest.mark.parametrize(
    ("path", "make"),
    [
        ("/v1/chat/completions", lambda value: {"metadata": value}),
        ("/v1/chat/completions", lambda value: {"messages": [{"role": "user", "content": value}]}),
        ("/v1/chat/completions", lambda value: {"messages": [{"role": "user", "content": "x", "extra": value}]}),
        ("/v1/chat/completions", lambda value: {"tools": [{"type": "function", "function": value}]}),
        (
            "/v1/chat/completions",
            lambda value: {"response_format": {"type": "json_schema", "json_schema": {"schema": value}}},
        ),
        ("/v1/chat/completions", lambda value: {"prediction": value}),
        ("/v1/completions", lambda value: {"structured_outputs": {"json": value}}),
        ("/v1/completions", lambda value: {"prompt": [value]}),
        ("/tokenize", lambda value: {"messages": [{"role": "user", "content": "x", "extra": value}]}),
        ("/detokenize", lambda value: {"tokens": value}),
    ],
)
def test_a_body_that_is_nested_too_deep_is_refused(emulated_server, path: str, make: Any, depth: int) -> None:
    value = '{"not":' * depth + "1" + "}" * depth  # deeper than Python writes
    body = json.dumps(make("VALUE")).replace('"VALUE"', value).encode()
    status, answer = post(emulated_server.url, path, body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert "levels deep" in answer["error"]["message"]


@pytest.mark.parametrize("depth", [2, 98])
def test_what_is_nested_no_deeper_than_allowed_is_served(real_server, depth: int) -> None:
    for fields in (nested_call(depth), {"metadata": nested(depth - 1)}):
        status, answer = post(real_server.url, "/v1/chat/completions", {**CHAT, **fields})
        assert status == 200, answer


def test_a_body_beyond_the_limit_is_refused(emulated_server) -> None:
    status, answer = post(emulated_server.url, "/v1/completions", b'{"prompt": "' + b"x" * 4_000_000 + b'"}')
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


MESSAGE = {"role": "user", "content": "x" * 70_000}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"messages": [MESSAGE]}, "messages"),
        ("/v1/chat/completions", {"messages": [MESSAGE], "n": 2}, "messages"),
        ("/v1/completions", {"prompt": [5] * 2049, "echo": True}, "prompt"),
        ("/tokenize", {"prompt": MESSAGE["content"] + "x"}, "prompt"),
        ("/tokenize", {"messages": [MESSAGE]}, "messages"),
        ("/detokenize", {"tokens": [5] * 2049}, "tokens"),
    ],
)
def test_what_is_far_beyond_the_context_is_refused(real_server, path: str, fields: dict[str, Any], param: str) -> None:
    """The context has 2,048 tokens; 65,536 characters are always tokenised."""
    status, body = post(real_server.url, path, fields)
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "context_length_exceeded", param)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_half_a_surrogate_pair_in_a_call_is_no_fault_of_ours(real_server, path: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "\\ud83d"}'}}
    fields = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    assert post(real_server.url, path, fields)[0] == 200


def test_a_grammar_is_checked_without_a_place(emulated_server, monkeypatch: pytest.MonkeyPatch) -> None:
    service, held = emulated_server.orchestrator.service, []

    async def check(grammar: Grammar, client_id: str) -> float:
        held.append(service.request_queue.num_running)
        raise InvalidRequestError("no", param="grammar")

    monkeypatch.setattr(service.grammar_check, "check", check)
    num_failures = service.statistics.failures["invalid_argument"]
    status, body = post(emulated_server.url, "/v1/completions", {**COMPLETION, "structured_outputs": {"regex": "a"}})
    assert (status, body["error"]["param"], held) == (400, "structured_outputs", [0])
    assert service.statistics.failures["invalid_argument"] == num_failures + 1


@pytest.mark.parametrize("second", [UnavailableError("lost"), ResourceExhaustedError("busy")])
def test_a_refused_grammar_stays_so_when_nothing_else_can_be_checked(
    emulated_server, monkeypatch: pytest.MonkeyPatch, second: PilotfishError
) -> None:
    verdicts = [second, InvalidRequestError("no", param="grammar")]

    async def check(grammar: Grammar, client_id: str) -> float:
        raise verdicts.pop()

    monkeypatch.setattr(emulated_server.orchestrator.service.grammar_check, "check", check)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    fields = {**CHAT, "tools": [tool], "tool_choice": "auto", "response_format": schema}
    status, body = post(emulated_server.url, "/v1/chat/completions", fields)
    assert (status, body["error"]["message"], verdicts) == (400, "no", [])


def test_a_number_with_an_absurd_exponent_is_no_fault_of_ours(emulated_server) -> None:
    body = json.dumps({**CHAT, "metadata": {"x": "N"}}).replace('"N"', "1e99999999999999999999").encode()
    status, answer = post(emulated_server.url, "/v1/chat/completions", body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_another_model_is_not_found(emulated_client: openai.OpenAI) -> None:
    for call in (emulated_client.chat.completions.create, emulated_client.completions.create):
        prompt = {"messages": CHAT["messages"]} if call == emulated_client.chat.completions.create else {"prompt": "x"}
        with pytest.raises(openai.NotFoundError) as failure:
            call(model="gpt-oracle", **prompt)
        assert (failure.value.code, failure.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        emulated_client.models.retrieve("gpt-oracle")


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/v1/nothing", "GET", 404), ("/v1/completions", "GET", 405), *UNSERVED]
)
def test_no_such_place(emulated_server, path: str, method: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(urllib.request.Request(f"{emulated_server.url}{path}", method=method), timeout=30)
    with failure.value as error:
        assert error.code == status
        assert json.load(error)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
def test_fields_without_effect_are_named_in_a_header(emulated_client: openai.OpenAI, stream: bool) -> None:
    response = emulated_client.chat.completions.with_raw_response.create(
        model="",
        messages=CHAT["messages"],
        max_tokens=2,
        user="me",
        metadata={"a": "b"},
        stream=stream,
        extra_body={"temprature": 1},
    )
    assert set(response.headers["x-pilotfish-ignored-fields"].split(", ")) == {
        "user",
        "metadata",
        "temprature (temperature?)",
    }
    assert response.status_code == 200


def test_strict_fields_bring_the_refusal_back(start_server) -> None:
    with start_server(http={"strict_fields": True}) as server:
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION), ("/tokenize", PROMPT)):
            status, answer = post(server.url, path, {**body, "oops": 1})
            assert (status, answer["error"]["param"]) == (400, "oops")
            assert post(server.url, path, {**body, "user": "me"})[0] == 200
