"""The API's description of itself, made from the types that requests and answers are decoded to and made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

import pilotfish
from orchestrator.http.caller import TIMEOUT_HEADER
from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.chat_response import ChatCompletion, ChatCompletionChunk
from orchestrator.http.completions.completion_request import CompletionRequest
from orchestrator.http.completions.completion_response import Completion
from orchestrator.http.errors import ErrorBody
from orchestrator.http.exchange import Handler
from orchestrator.http.operations.information import ModelCard, ModelList, Status, Version
from orchestrator.http.operations.tokenization import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from orchestrator.http.responses.request import ResponsesRequest
from orchestrator.http.responses.response import Response, ResponseEvent

_REF = "#/components/schemas/{name}"
_TIME_LIMIT = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "How long the whole answer may take, in milliseconds; 504 afterwards",
    "schema": {"type": "integer", "minimum": 1, "maximum": 10**9},
}


@dataclass(frozen=True)
class Operation:
    """One endpoint."""

    method: str
    path: str
    summary: str
    response: type
    request: type | None = None
    event: type | None = None
    """Of the stream, where `stream` may be asked for."""
    """Such endpoints have a time limit, which their clients may set."""
    own_failures: tuple[int, ...] = ()
    """Status codes of an endpoint that takes nothing."""

    @property
    def failures(self) -> tuple[int, ...]:
        if self.event is not None:
            return 400, 404, 413, 429, 500, 503, 504
        return self.own_failures if self.request is None else (400, 404, 413, 503)


OPERATIONS = (
    Operation(
        "post", "/v1/chat/completions", "Answer a chat", ChatCompletion, ChatCompletionRequest, ChatCompletionChunk
    ),
    Operation("post", "/v1/completions", "Go on with a text", Completion, CompletionRequest, Completion),
    Operation(
        "post", "/v1/responses", "Answer a chat whose items are typed", Response, ResponsesRequest, ResponseEvent
    ),
    Operation("get", "/v1/models", "The served model", ModelList),
    Operation("get", "/v1/models/{model_id}", "The served model, by its name", ModelCard, own_failures=(404, 503)),
    Operation("post", "/tokenize", "Token ids of a text or a chat", TokenizeResponse, TokenizeRequest),
    Operation("post", "/detokenize", "Text of token ids", DetokenizeResponse, DetokenizeRequest),
    Operation("get", "/health", "Whether the process answers", Status, own_failures=(503,)),
    Operation("get", "/ready", "Whether requests are served", Status, own_failures=(503,)),
    Operation("get", "/version", "Of Pilotfish", Version),
)


def openapi_endpoint() -> Handler:
    """GET /openapi.json."""
    document = openapi_document()
    return lambda exchange: exchange.reply(document)


def openapi_document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    types: set[type] = {ErrorBody}
    for operation in OPERATIONS:
        types |= {each for each in (operation.request, operation.response, operation.event) if each is not None}
    ordered = sorted(types, key=lambda each: each.__name__)
    references, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    schemas = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pilotfish",
            "version": pilotfish.__version__,
            "description": "OpenAI's API, served with lossless speculative decoding.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _describe(operation: Operation, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    content = _json(schemas[operation.response])
    if operation.event is not None:
        # Each event's data is such a document; the last one is [DONE].
        content["text/event-stream"] = {"itemSchema": schemas[operation.event]}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": "_".join(part for part in operation.path.split("/") if part and "{" not in part)
        + ("_by_id" if "{" in operation.path else ""),
        "responses": {"200": {"description": operation.response.__name__, "content": content}},
    }
    for status in operation.failures:
        described["responses"][str(status)] = {"description": "See error", "content": _json(schemas[ErrorBody])}
    if operation.request is not None:
        described["requestBody"] = {"required": True, "content": _json(schemas[operation.request])}
    if "{model_id}" in operation.path:
        parameter = {"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}
        described["parameters"] = [parameter]
    if operation.event is not None:
        described["parameters"] = [_TIME_LIMIT]
    return described


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
