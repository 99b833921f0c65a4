"""One rule for keys that are not known, wherever they stand."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from orchestrator.http.body import decode_body
from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.completion_request import CompletionRequest
from orchestrator.http.completions.request_fields import IGNORED_HEADER, RequestFields, RequestReader
from orchestrator.http.exchange import Exchange
from orchestrator.http.operations.tokenization import DetokenizeRequest, TokenizeRequest
from pilotfish.chat import ChatMessage, ToolCall
from pilotfish.errors import InvalidRequestError

USER = {"role": "user", "content": "sea"}
CHAT = {"messages": [USER]}
CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
REQUESTS = {
    ChatCompletionRequest: CHAT,
    CompletionRequest: {"prompt": "sea"},
    TokenizeRequest: {"prompt": "sea"},
    DetokenizeRequest: {"tokens": [1]},
}

PLACES: list[tuple[type[RequestFields], dict[str, Any], str]] = [
    *((kind, {**body, "oops": 1}, "oops") for kind, body in REQUESTS.items()),
    *(
        (kind, {**REQUESTS[kind], name: {**body, "oops": 1}}, f"{name}.oops")
        for kind in (ChatCompletionRequest, CompletionRequest)
        for name, body in {
            "stream_options": {"include_usage": True},
            "speculation": {"mode": "on"},
            "structured_outputs": {"regex": "a"},
            "response_format": {"type": "text"},
        }.items()
    ),
    (ChatCompletionRequest, {"messages": [USER, {**USER, "oops": 1}]}, "messages[1].oops"),
    (
        ChatCompletionRequest,
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "function": {**CALL["function"], "oops": 1}}]}]},
        "messages[0].tool_calls[0].function.oops",
    ),
    (
        ChatCompletionRequest,
        {**CHAT, "tools": [{"type": "function", "function": {"name": "find", "oops": 1}}]},
        "tools[0].function.oops",
    ),
    (
        ChatCompletionRequest,
        {**CHAT, "tool_choice": {"type": "function", "function": {"name": "find", "oops": 1}}},
        "tool_choice.function.oops",
    ),
]


def read(kind: type[RequestFields], body: Any, *, is_strict: bool = False) -> tuple[Any, str]:
    """The fields, and what the answer's header names."""
    return read_by(RequestReader(kind, is_strict=is_strict), body)


def read_by(reader: RequestReader[Any], body: Any) -> tuple[Any, str]:
    exchange = Exchange({"type": "http", "path": "/v1", "headers": [], "server": ("sea", 1)}, None, None)  # type: ignore[arg-type]
    exchange.body = body if isinstance(body, bytes) else msgspec.json.encode(body)

    async def run(work: Callable[[], Any]) -> Any:
        return work()

    return asyncio.run(reader.read(exchange, run)), exchange.extra_headers.get(IGNORED_HEADER, "")


every_place = pytest.mark.parametrize(
    ("kind", "body", "param"), PLACES, ids=[f"{kind.__name__}-{param}" for kind, _, param in PLACES]
)


@every_place
def test_a_key_that_is_not_known_is_ignored_and_named(kind: type[RequestFields], body: Any, param: str) -> None:
    fields, named = read(kind, body)
    assert named == re.sub(r"\[\d\]", "", param)
    without, _ = read(kind, msgspec.json.encode(body).replace(b',"oops":1', b""))
    assert fields == without


@every_place
def test_where_fields_are_strict_it_is_refused(kind: type[RequestFields], body: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        read(kind, {**body, "user": "me"}, is_strict=True)
    assert failure.value.param == param
    assert str(failure.value) == f"unrecognized request argument: {param}"


def test_what_was_meant_is_asked_and_why_a_known_field_does_nothing_is_told() -> None:
    stream_options = {"include_usag": True, "include_obfuscation": True}
    body = {**CHAT, "temprature": 1, "oops": 2, "user": "me", "stream_options": stream_options}
    _, named = read(ChatCompletionRequest, body)
    assert named.split(", ") == [
        "temprature (temperature?)",
        "oops",
        "user",
        "stream_options.include_usag (include_usage?)",
        "stream_options.include_obfuscation (TLS hides events)",
    ]


@pytest.mark.parametrize("is_strict", [False, True])
def test_what_others_know_is_named_unless_it_is_empty(is_strict: bool) -> None:
    message = {**USER, "parsed": {"a": 1}, "annotations": [], "audio": None, "refusal": ""}
    _, named = read(ChatCompletionRequest, {"messages": [message, message], "user": "me"}, is_strict=is_strict)
    assert named == "messages.parsed, user"


@pytest.mark.parametrize("is_strict", [False, True])
def test_null_is_as_if_left_out_and_a_whole_number_is_an_integer(is_strict: bool) -> None:
    body = {"prompt": [5.0, 6], "max_tokens": 3.0, "stop_token_ids": [2.0], "seed": 1e2, "speculation": {"mode": "on"}}
    body["speculation"] |= {"acceptance": None, "return_tokens": None}
    fields, named = read(CompletionRequest, body, is_strict=is_strict)
    assert fields == CompletionRequest(
        prompt=[5, 6], max_tokens=3, stop_token_ids=[2], seed=100, speculation=fields.speculation
    )
    assert fields.speculation.acceptance == "coupled"
    assert named == ""


@pytest.mark.parametrize("number", ["2.5", "1e99", "1e999999999999", "-1e999999999999"])
def test_a_number_that_is_no_integer_is_refused(number: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        read(CompletionRequest, f'{{"prompt": "x", "max_tokens": {number}}}'.encode())
    assert failure.value.param == "max_tokens"


def test_a_schema_keeps_every_digit() -> None:
    schema = b'{"minimum": 0.10000000000000000000001}'
    body = b'{"prompt": "x", "oops": 1.5, "structured_outputs": {"json": %b}}' % schema
    fields, _ = read(CompletionRequest, body)
    assert str(fields.structured_outputs.json["minimum"]) == "0.10000000000000000000001"


def test_strangers_cannot_flood_header_and_log(caplog: pytest.LogCaptureFixture) -> None:
    reader = RequestReader(CompletionRequest, is_strict=False)
    with caplog.at_level(logging.WARNING):
        for start in range(0, 1000, 100):
            _, named = read_by(
                reader, {"prompt": "x", **{f"ö\r\n{i}" + "x" * 99: 1 for i in range(start, start + 100)}}
            )
            assert named.isascii()
            assert named.isprintable()
            assert len(named) < 4000
    assert len(caplog.records) <= 256


def test_what_may_be_meant_is_looked_up_once_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def get_close_matches(name: str, *_: Any, **__: Any) -> list[str]:
        looked_up.append(name)
        return []

    monkeypatch.setattr("difflib.get_close_matches", get_close_matches)
    _, named = read(ChatCompletionRequest, {"messages": [{**USER, "contemt": "sky"}] * 3})
    assert (named, looked_up) == ("messages.contemt", ["contemt"])


def test_the_log_names_a_field_once(caplog: pytest.LogCaptureFixture) -> None:
    reader = RequestReader(CompletionRequest, is_strict=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            read_by(reader, {"prompt": "x", "oops": 1})
    assert [record.getMessage().count("oops") for record in caplog.records] == [1]


def structs(node: msgspec.inspect.Type) -> Iterator[type]:
    """All that a type is made of."""
    match node:
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            yield cls
            for field in fields:
                yield from structs(field.type)
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                yield from structs(each)
        case msgspec.inspect.ListType(item_type=item):
            yield from structs(item)


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_rule_holds_for_every_part_of_a_request(kind: type[RequestFields]) -> None:
    for part in structs(msgspec.inspect.type_info(kind)):
        assert issubclass(part, RequestFields), part


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {"7": 1.0}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"oops": 1}}}),
        ("structured_outputs", {"json": {"oops": 1}}),
        ("tools", [{"type": "function", "function": {"name": "f", "parameters": {"oops": 1}, "strict": True}}]),
    ],
)
def test_keys_of_the_callers_own_are_free(name: str, value: Any) -> None:
    fields = decode_body(msgspec.json.Decoder(ChatCompletionRequest), msgspec.json.encode({**CHAT, name: value}))
    given = msgspec.to_builtins(getattr(fields, name), str_keys=True)
    assert given == value


def test_what_clients_were_given_may_be_sent_back() -> None:
    """An answer as OpenAI's own client has it, whole and gathered from a stream."""
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [{**CALL, "index": 0}],
    }
    tool = {"role": "tool", "tool_call_id": "1", "content": "a shark", "name": "find"}
    fields, _ = read(ChatCompletionRequest, {"messages": [message, tool]}, is_strict=True)
    assert [each.role for each in fields.messages] == ["assistant", "tool"]


def test_what_clients_dump_of_an_answer_is_taken_back() -> None:
    """openai's client adds what it parsed, LiteLLM what others may have told."""
    function = {"name": "f", "arguments": '{"a": 1}', "parsed_arguments": {"a": 1}, "provider_specific_fields": {}}
    call = {"id": "1", "type": "function", "function": function, "provider_specific_fields": {"thought": "x"}}
    answer = {"role": "assistant", "content": None, "refusal": None, "annotations": None, "audio": None}
    answer |= {"function_call": None, "tool_calls": [call], "parsed": {"a": 1}, "provider_specific_fields": {"b": None}}
    fields, _ = read(ChatCompletionRequest, {"messages": [answer]}, is_strict=True)
    assert fields.prompt(fields.tool_use()).messages == (
        ChatMessage("assistant", "", (ToolCall("1", "f", '{"a": 1}'),)),
    )


async def test_a_large_body_is_read_on_a_thread_and_no_body_is_kept() -> None:
    ran: list[str] = []

    async def run(work: Callable[[], Any]) -> Any:
        ran.append("large")
        return work()

    for prompt in ("a" * 60_000, "a" * 70_000):
        exchange = Exchange({"type": "http", "path": "/v1", "headers": [], "server": ("sea", 1)}, None, None)  # type: ignore[arg-type]
        exchange.body = msgspec.json.encode({"prompt": prompt})
        fields = await RequestReader(CompletionRequest, is_strict=False).read(exchange, run)
        assert fields.prompt == prompt
        assert not exchange.body
    assert ran == ["large"]
