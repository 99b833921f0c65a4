from __future__ import annotations

import json

import pytest

from orchestrator.http.completions.response_format import StructuredOutputs, wanted_grammar
from pilotfish.errors import InvalidRequestError
from pilotfish.types import Grammar, GrammarKind

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("response_format", "grammar"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, Grammar(GrammarKind.JSON_OBJECT)),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, Grammar(GrammarKind.JSON_OBJECT)),
        ({"type": "text", "schema": SCHEMA}, None),
        ({"type": "json_object", "schema": {}}, Grammar(GrammarKind.JSON_OBJECT)),
        *(
            ({"type": kind, "schema": schema}, Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
            for kind in ("json_object", "json_schema")
            for schema in (SCHEMA, {"type": "array", "maxItems": 2})
        ),
        ({"type": "json_schema", "schema": True}, Grammar(GrammarKind.JSON_SCHEMA, "true")),
        ({"type": "json_object", "schema": True}, Grammar(GrammarKind.JSON_OBJECT)),
        (
            {"type": "json_object", "schema": {"required": ["a"]}},
            Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object", "required": ["a"]}'),
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "schema": {}},
            Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        ),
    ],
)
def test_response_format(response_format, grammar) -> None:
    assert wanted_grammar(response_format, None) == grammar


@pytest.mark.parametrize(
    ("outputs", "grammar"),
    [
        (StructuredOutputs(json=SCHEMA), Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))),
        (StructuredOutputs(json='{"type": "null"}'), Grammar(GrammarKind.JSON_SCHEMA, '{"type": "null"}')),
        (StructuredOutputs(json_object=True), Grammar(GrammarKind.JSON_OBJECT)),
        (StructuredOutputs(regex="a+"), Grammar(GrammarKind.REGEX, "a+")),
        (StructuredOutputs(choice=["a.b", "c"]), Grammar(GrammarKind.REGEX, r"a\.b|c")),
        (StructuredOutputs(grammar='start: "a"'), Grammar(GrammarKind.LARK, 'start: "a"')),
        (StructuredOutputs(grammar='root ::= "a"'), Grammar(GrammarKind.LARK, 'start: "a"')),
    ],
)
def test_structured_outputs(outputs, grammar) -> None:
    assert wanted_grammar(None, outputs) == grammar
    assert wanted_grammar({"type": "text"}, outputs) == grammar


@pytest.mark.parametrize(
    ("response_format", "outputs", "param"),
    [
        ({}, None, "response_format.type"),
        ({"type": "xml"}, None, "response_format.type"),
        ({"type": "json_schema"}, None, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": "x"}}, None, "response_format.json_schema.schema"),
        (None, StructuredOutputs(), "structured_outputs"),
        (None, StructuredOutputs(grammar="root ::= b"), "structured_outputs"),
        (None, StructuredOutputs(grammar=f"root ::= {'(' * 2000}"), "structured_outputs"),
        (None, StructuredOutputs(grammar=f"root ::= {'a' * 5000}"), "structured_outputs"),
        (None, StructuredOutputs(regex="a", json_object=True), "structured_outputs"),
        ({"type": "json_object"}, StructuredOutputs(regex="a"), "structured_outputs"),
    ],
)
def test_what_is_wrong_is_named(response_format, outputs, param) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        wanted_grammar(response_format, outputs)
    assert failure.value.param == param
