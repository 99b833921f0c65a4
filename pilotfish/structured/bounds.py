"""What JSON of strangers may be, looked at before a parser that would recurse or round gets to see it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pilotfish.errors import InvalidRequestError

MAX_JSON_DEPTH = 100
"""Objects and arrays within each other. Python's parsers give up at some 1,000, the grammar library's at 128."""

MAX_EXACT_NUMBER = 2**53
"""Up to here every integer is a float of its own; beyond it the grammar library would force another number."""

# Possessive, so that a text of quotes and backslashes takes linear time; the last string may lack its end.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_AS_ROUND = bytes.maketrans(b"[]{}", b"()()")

_SCHEMAS_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose keys are names of the caller's."""
_ANNOTATIONS = frozenset(("default", "examples", "example", "title", "description", "$comment"))
"""Keywords that bind no answer."""


def check_json_depth(text: bytes, what: str, param: str | None = None) -> None:
    """Raises InvalidRequestError for JSON that is nested more than MAX_JSON_DEPTH deep, or whose brackets do not match.

    Takes linear time; 4 MB of nothing but brackets some 20 ms.
    """
    if text.count(b"[") + text.count(b"{") <= MAX_JSON_DEPTH:
        return  # nearly always
    brackets = _STRING.sub(b"", text).translate(_AS_ROUND, delete=_NO_BRACKETS)
    for _ in range(MAX_JSON_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"()", b"")  # the innermost level
    if brackets:
        raise InvalidRequestError(
            f"{what} is nested more than {MAX_JSON_DEPTH} levels deep, or its brackets do not match", param=param
        )


def check_numbers(schema: Any, param: str) -> None:
    """Raises InvalidRequestError for a JSON schema with a number that answers could not be held to exactly."""
    for keyword, number in _numbers(schema):
        if not abs(number) <= MAX_EXACT_NUMBER:  # so that NaN is refused
            raise InvalidRequestError(
                f"the JSON schema cannot be used: {keyword} holds a number beyond 2^53 ({MAX_EXACT_NUMBER}), "
                "up to which numbers are exact; use a string with a pattern",
                param=param,
            )


def _numbers(schema: Any) -> Iterator[tuple[str, float]]:
    """Each number that binds an answer, with its keyword."""
    waiting: list[tuple[str, Any, bool]] = [("the schema", schema, False)]
    while waiting:
        keyword, value, is_by_name = waiting.pop()
        match value:
            case bool() | str() | None:
                pass
            case int() | float():
                yield keyword, value
            case Mapping():
                waiting.extend(
                    (key if not is_by_name else keyword, inner, key in _SCHEMAS_BY_NAME and not is_by_name)
                    for key, inner in value.items()
                    if is_by_name or key not in _ANNOTATIONS
                )
            case _:
                waiting.extend((keyword, inner, False) for inner in value)


def embedded_schemas(lark: str, param: str) -> Iterator[Any]:
    """The JSON schemas that a Lark grammar holds (`%json {...}`), parsed. Raises InvalidRequestError as above."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"%json\s*(?=\{)", lark):
        try:
            schema, end = decoder.raw_decode(lark, found.end())
        except RecursionError:
            end = len(lark)
        except ValueError:
            continue  # no JSON: the compiler says so
        check_json_depth(lark[found.end() : end].encode(errors="replace"), "a JSON schema in the Lark grammar", param)
        yield schema
