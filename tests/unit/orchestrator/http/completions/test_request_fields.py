"""One rule for keys that are not known, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from orchestrator.http.body import decode_body
from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.completion_request import CompletionRequest
from orchestrator.http.completions.request_fields import RequestFields
from orchestrator.http.operations.tokenization import DetokenizeRequest, TokenizeRequest
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
        {**CHAT, "tool_choice": {"type": "function", "function": {"name": "find", "oops": 1}}},
        "tool_choice.function.oops",
    ),
]


@pytest.mark.parametrize(
    ("kind", "body", "param"), PLACES, ids=[f"{kind.__name__}-{param}" for kind, _, param in PLACES]
)
def test_a_key_that_is_not_known_is_refused_and_named(kind: type[RequestFields], body: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        decode_body(msgspec.json.Decoder(kind), msgspec.json.encode(body))
    assert failure.value.param == param
    assert str(failure.value) == f"unrecognized request argument: {param}"


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
        ("metadata", {"oops": "1"}),
        ("prediction", {"type": "content", "content": "x"}),
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
    decoder = msgspec.json.Decoder(ChatCompletionRequest)
    fields = decode_body(decoder, msgspec.json.encode({"messages": [message, tool]}))
    assert [each.role for each in fields.messages] == ["assistant", "tool"]
