"""The API's description of itself, made from the types that requests and answers are decoded to and made of."""

from __future__ import annotations

from typing import Any

import msgspec

import pilotfish
from orchestrator.http.caller import TIMEOUT_HEADER
from orchestrator.http.errors import ErrorBody
from orchestrator.http.exchange import Handler
from orchestrator.http.routes import OPERATIONS, Operation

_REF = "#/components/schemas/{name}"
_TIME_LIMIT = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "How long the whole answer may take, in milliseconds; 504 afterwards",
    "schema": {"type": "integer", "minimum": 1, "maximum": 10**9},
}


def openapi_endpoint() -> Handler:
    """GET /openapi.json."""
    document = openapi_document()
    return lambda exchange: exchange.reply(document)


def openapi_document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    types: set[type] = {ErrorBody}
    described = [operation for operation in OPERATIONS if operation.response is not None]
    for operation in described:
        types |= {each for each in (operation.request, operation.response, operation.event) if each is not None}
    ordered = sorted(types, key=lambda each: each.__name__)
    references, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    schemas = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in described:
        path = operation.path.replace(":path}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _describe(operation, schemas)
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
    assert operation.response is not None
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
    if "{model_id" in operation.path:
        parameter = {"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}
        described["parameters"] = [parameter]
    if operation.event is not None:
        described["parameters"] = [_TIME_LIMIT]
    return described


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
