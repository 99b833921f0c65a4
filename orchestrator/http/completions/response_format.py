"""What the whole answer must be: OpenAI's `response_format`, and `structured_outputs` as vLLM spells it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from orchestrator.http.completions.request_fields import RequestFields
from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import lark_of, schema_grammar
from pilotfish.types import Grammar, GrammarKind


class JsonSchemaFormat(RequestFields, kw_only=True):
    """A JSON schema and what it is called."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | bool | msgspec.UnsetType = msgspec.UNSET
    strict: bool | None = None
    """Has no effect: the schema is held to in any case."""


class ResponseFormat(RequestFields, kw_only=True):
    """OpenAI's."""

    type: str
    json_schema: JsonSchemaFormat | None = None
    schema: dict[str, Any] | bool | msgspec.UnsetType = msgspec.UNSET
    """That of json_schema, where llama.cpp's clients put it; a json_object may have one, too."""


class StructuredOutputs(RequestFields, kw_only=True):
    """Exactly one of its fields."""

    json: str | dict[str, Any] | None = None
    """A JSON schema."""
    json_object: bool | None = None
    """Any JSON object."""
    regex: str | None = None
    choice: list[str] | None = None
    """One of these texts."""
    grammar: str | None = None
    """Lark, in llguidance's dialect."""


def wanted_grammar(response_format: dict[str, Any] | None, outputs: StructuredOutputs | None) -> Grammar | None:
    """The grammar of the answer; None: it is free. Raises InvalidRequestError, with the parameter."""
    if outputs is None:
        return None if response_format is None else _of_response_format(response_format)
    if response_format is not None and response_format.get("type") != "text":
        raise InvalidRequestError("set response_format or structured_outputs, not both", param="structured_outputs")
    return _of_structured_outputs(outputs)


def grammar_field(outputs: StructuredOutputs | None) -> str:
    """The parameter that a grammar comes from."""
    return "response_format" if outputs is None else "structured_outputs"


def _of_response_format(response_format: dict[str, Any]) -> Grammar | None:
    match response_format:
        case {"type": "text"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict() | bool() as schema}}:
            return schema_grammar(schema, "response_format")
        case {"type": "json_schema", "schema": dict() | bool() as schema}:
            return schema_grammar(schema, "response_format")
        case {"type": "json_object", "schema": dict() as schema} if schema != {}:
            return schema_grammar({"type": "object", **schema}, "response_format")
        case {"type": "json_object"}:
            return Grammar(GrammarKind.JSON_OBJECT)
        case {"type": "json_schema", "json_schema": dict() as described} if "schema" not in described:
            return Grammar(GrammarKind.JSON_OBJECT)
        case {"type": "json_schema"}:
            raise InvalidRequestError(
                "response_format.json_schema must have a schema", param="response_format.json_schema.schema"
            )
    raise InvalidRequestError(
        "response_format.type must be text, json_object or json_schema", param="response_format.type"
    )


def _of_structured_outputs(outputs: StructuredOutputs) -> Grammar:
    grammars = []
    if isinstance(outputs.json, str):
        grammars.append(Grammar(GrammarKind.JSON_SCHEMA, outputs.json))
    elif outputs.json is not None:
        grammars.append(schema_grammar(outputs.json, "structured_outputs"))
    if outputs.json_object:
        grammars.append(Grammar(GrammarKind.JSON_OBJECT))
    if outputs.regex is not None:
        grammars.append(Grammar(GrammarKind.REGEX, outputs.regex))
    if outputs.choice:
        grammars.append(Grammar(GrammarKind.REGEX, "|".join(re.escape(text) for text in outputs.choice)))
    if outputs.grammar is not None:
        grammars.append(Grammar(GrammarKind.LARK, lark_of(outputs.grammar, "structured_outputs")))
    if len(grammars) != 1:
        raise InvalidRequestError(
            f"structured_outputs sets {len(grammars)} of json, json_object, regex, choice and grammar; set one",
            param="structured_outputs",
        )
    return grammars[0]
