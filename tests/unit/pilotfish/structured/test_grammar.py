"""Grammars are checked before anything starts, and errors say what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import MAX_GRAMMAR_CHARS, check_grammar
from pilotfish.testing.json_schemas import random_object_schema
from pilotfish.types import Grammar, GrammarKind


def schema(value: Any) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(value))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(GrammarKind.JSON_OBJECT),
        Grammar(GrammarKind.REGEX, "[a-z]{2,4}"),
        Grammar(GrammarKind.LARK, 'start: "<a>" obj "</a>"\nobj: %json {"type": "object"}'),
        schema(True),
        schema({}),
        *(schema(random_object_schema(seed)) for seed in range(20)),
    ],
)
def test_good_grammars_pass(grammar: Grammar) -> None:
    check_grammar(grammar)


@pytest.mark.parametrize(
    ("grammar", "told"),
    [
        (Grammar(GrammarKind.JSON_SCHEMA, "{"), "is not JSON"),
        (schema([1]), "object or a boolean, not list"),
        (schema({"type": "foo"}), "foo"),
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"$ref": "#/definitions/nope"}), "nope"),
        (schema({"type": "integer", "minimum": 5, "maximum": 1}), "minimum"),
        (Grammar(GrammarKind.REGEX, "a(b"), "regular expression"),
        (Grammar(GrammarKind.LARK, "start: nothing"), "nothing"),
        (Grammar(GrammarKind.REGEX, "a" * (MAX_GRAMMAR_CHARS + 1)), "at most"),
    ],
)
def test_bad_grammars_are_refused_by_what_is_wrong(grammar: Grammar, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        check_grammar(grammar, param="response_format")
    assert caught.value.param == "response_format"
    assert "\n" not in str(caught.value)


def test_a_schema_cannot_set_the_librarys_options() -> None:
    check_grammar(schema({"type": "object", "x-guidance": {"lenient": True, "nonsense": 1}}))
    with pytest.raises(InvalidRequestError, match="uniqueItems"):
        check_grammar(schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}))
