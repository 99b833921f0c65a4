"""The public API's messages from and to plain values. Only the servicer uses this."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from orchestrator.requests.options import RequestDefaults, options_of
from orchestrator.requests.prompt import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from orchestrator.requests.request import GenerationOptions, Mode, check_request_bytes
from pilotfish.chat import ROLES, ChatMessage
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.conversion import enum_from_proto, grammar_from_proto
from pilotfish.rpc.v1 import inference_pb2
from pilotfish.structured.bounds import MAX_JSON_ITEMS
from pilotfish.types import AcceptanceMode

_MODES: dict[int, Mode] = {
    inference_pb2.SPECULATION_MODE_AUTO: "auto",
    inference_pb2.SPECULATION_MODE_OFF: "off",
    inference_pb2.SPECULATION_MODE_ON: "on",
}


def check_request(request: inference_pb2.GenerateRequest | inference_pb2.TokenizeRequest, max_bytes: int) -> None:
    """Refuse a request that would take long to look at: the same as over HTTP, where a body is read.

    Raises RequestTooLargeError, InvalidRequestError.
    """
    check_request_bytes(request.ByteSize(), max_bytes)
    lists = [value for field, value in request.ListFields() if field.is_repeated]
    if sum(map(len, (*lists, request.chat.messages))) > MAX_JSON_ITEMS:
        raise InvalidRequestError(f"the request's lists hold more than {MAX_JSON_ITEMS} items")


def prompt_from_proto(
    request: inference_pb2.GenerateRequest | inference_pb2.TokenizeRequest, kind: str | None
) -> Prompt:
    """The prompt in the field that is set. Raises InvalidRequestError if none is."""
    match kind:
        case "text":
            return TextPrompt(request.text)
        case "tokens":
            return TokenPrompt(request.tokens.token_ids)
        case "chat":
            return ChatPrompt(tuple(map(_message, request.chat.messages)))
        case _:
            raise InvalidRequestError("the request has no prompt; set text, tokens or chat")


def _message(message: inference_pb2.ChatMessage) -> ChatMessage:
    if message.role not in ROLES:
        raise InvalidRequestError(f"the role {message.role!r} is unknown; known are {', '.join(ROLES)}", param="chat")
    return ChatMessage(ROLES[message.role], message.content)


def options_from_proto(
    request: inference_pb2.GenerateRequest, defaults: RequestDefaults, tokenizer: Tokenizer
) -> GenerationOptions:
    """Everything but the prompt. Raises InvalidRequestError for values out of range."""
    given = {**_given(request), **_given(request.speculation)}
    given["skip_special_tokens"] = not request.show_special_tokens
    given["logit_bias"] = tuple((item.token_id, item.bias) for item in request.logit_bias)
    if request.HasField("logprobs"):
        given["num_logprobs"] = request.logprobs
    if request.HasField("grammar"):
        given["grammar"] = grammar_from_proto(request.grammar)
    if "acceptance" in given:
        given["acceptance"] = enum_from_proto(AcceptanceMode, given["acceptance"])
    if "mode" in given:
        if given["mode"] not in _MODES:
            raise InvalidRequestError(f"speculation mode {given['mode']} is unknown")
        given["mode"] = _MODES[given["mode"]]
    return options_of(given, defaults, tokenizer)


def _given(message: Message) -> dict[str, Any]:
    """What is set, by its name; lists as tuples."""
    return {field.name: tuple(value) if field.is_repeated else value for field, value in message.ListFields()}
