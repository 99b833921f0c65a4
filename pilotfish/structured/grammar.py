"""From what a request asks for to a grammar of llguidance's, checked before anything starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLMatcher, regex_to_lark

from pilotfish.errors import InvalidRequestError
from pilotfish.types import Grammar, GrammarKind

MAX_GRAMMAR_CHARS = 65_536
"""Of a schema or grammar; longer ones are refused unread."""

_JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As json.dumps writes it: a weak model that may put whitespace anywhere may do so for ever."""

ANY_OBJECT = '{"type": "object"}'
"""The schema of any JSON object."""


def check_grammar(grammar: Grammar, *, param: str = "grammar") -> None:
    """Compile the grammar without a vocabulary. May take 100 ms: not for an event loop.

    Raises InvalidRequestError, with `param`, that names what is wrong or not supported.
    """
    is_error, messages = LLMatcher.validate_grammar_with_warnings(engine_grammar(grammar, param=param))
    if is_error:
        raise InvalidRequestError(f"the {_name(grammar)} cannot be used: {one_line(messages)}", param=param)


def engine_grammar(grammar: Grammar, *, param: str = "grammar") -> str:
    """The grammar as llguidance takes it. Raises InvalidRequestError for what is no JSON or too long."""
    if len(grammar.text) > MAX_GRAMMAR_CHARS:
        raise InvalidRequestError(
            f"the {_name(grammar)} has {len(grammar.text)} characters; at most {MAX_GRAMMAR_CHARS} are allowed",
            param=param,
        )
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return _json_grammar(grammar.text, param)
        case GrammarKind.JSON_OBJECT:
            return _json_grammar(ANY_OBJECT, param)
        case GrammarKind.REGEX:
            return str(LLMatcher.grammar_from_regex(grammar.text))
        case GrammarKind.LARK:
            return str(LLMatcher.grammar_from_lark(grammar.text))


def json_rule(schema: Mapping[str, Any] | bool) -> str:
    """The right-hand side of a Lark rule for documents of a JSON schema."""
    return f"%json {json.dumps({**_as_object(schema), 'x-guidance': _JSON_OPTIONS})}"


def lark_rule(grammar: Grammar, *, param: str = "grammar") -> str:
    """The right-hand side of a Lark rule for texts of a grammar of any kind. Raises InvalidRequestError."""
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return json_rule(_schema(grammar.text, param))
        case GrammarKind.JSON_OBJECT:
            return json_rule(_schema(ANY_OBJECT, param))
        case GrammarKind.REGEX:
            return f"/{regex_to_lark(grammar.text, '')}/" if grammar.text else '""'
        case GrammarKind.LARK:
            return f"%lark {{\n{grammar.text}\n}}"


def _json_grammar(text: str, param: str) -> str:
    # The library's own options, which a schema may hold, are not the caller's to set.
    schema = {**_as_object(_schema(text, param)), "x-guidance": _JSON_OPTIONS}
    return str(LLMatcher.grammar_from_json_schema(json.dumps(schema)))


def _schema(text: str, param: str) -> Mapping[str, Any] | bool:
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the JSON schema is not JSON: {error}", param=param) from None
    if not isinstance(schema, dict | bool):
        raise InvalidRequestError(f"a JSON schema is an object or a boolean, not {type(schema).__name__}", param=param)
    return schema


def _as_object(schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    """Booleans are schemas too, but the library takes objects only."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _name(grammar: Grammar) -> str:
    return {
        GrammarKind.JSON_SCHEMA: "JSON schema",
        GrammarKind.JSON_OBJECT: "JSON schema",
        GrammarKind.REGEX: "regular expression",
        GrammarKind.LARK: "Lark grammar",
    }[grammar.kind]


def one_line(messages: Sequence[str]) -> str:
    """The library's words, which show the place of a mistake over several lines."""
    words = [word for message in messages for word in message.split() if word.strip("^|")]
    return " ".join(words) if words else "the library does not say why"
