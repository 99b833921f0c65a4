"""What JSON of strangers may be, looked at before a parser that would recurse or round gets to see it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import numpy as np

from pilotfish.errors import InvalidRequestError

MAX_JSON_DEPTH = 100
"""Objects and arrays within each other. Python's parsers give up at some 1,000, the grammar library's at 128."""

MAX_EXACT_NUMBER = 2**53
"""Up to here every integer is a float of its own; beyond it the grammar library would force another number."""

MAX_JSON_ITEMS = 100_000
"""Objects, arrays, strings (names included), and numbers that are no integers: each takes a parser as long, and as much
memory, as a hundred characters of text. 4 MB of them hold up all threads for 0.4 s and make 100 MB (measured)."""

_SLICE_BYTES = 2**16
"""Looked at together, in ten times as much memory."""
_QUOTE = ord('"')
_STEPS = np.zeros(256, np.int8)
"""Into an object or array, and out of one, by character."""
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_IS_FRACTION = np.zeros(256, np.bool_)
"""What only numbers that are no integers have, but for the `e` of true and false."""
_IS_FRACTION[list(b".eE")] = True

_SCHEMAS_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose keys are names of the caller's."""
_ANNOTATIONS = frozenset(("default", "examples", "example", "title", "description", "$comment"))
"""Keywords that bind no answer."""
_WORDS = frozenset(("title", "description", "$comment"))
"""Those of them that are for readers."""
_VALUES = frozenset(("const", "enum"))
"""Keywords that hold documents, whose keys are no keywords."""
_EXCLUSIVE = frozenset(("exclusiveMinimum", "exclusiveMaximum"))
_FORMATS = frozenset(
    (
        *("date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
        *("uri", "uri-reference", "iri", "iri-reference", "uri-template", "uuid", "regex"),
        *("json-pointer", "relative-json-pointer"),
    )
)
"""Values of `format` that bind a string (JSON Schema 2020-12, 7.3)."""


def check_json(text: bytes | bytearray, what: str, param: str | None = None) -> None:
    """Raises InvalidRequestError for JSON that is more than MAX_JSON_DEPTH deep or has more than MAX_JSON_ITEMS.

    4 MB take 0.1 s at most, in which other threads run."""
    if text.count(b"[") + text.count(b"{") <= MAX_JSON_DEPTH and len(text) <= MAX_JSON_ITEMS:
        return  # nearly always
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # so that each quote begins or ends a string
    depth = num_items = 0
    is_inside = np.False_
    for begin in range(0, len(text), _SLICE_BYTES):
        characters = np.frombuffer(text, np.uint8, min(_SLICE_BYTES, len(text) - begin), begin)
        quotes = characters == _QUOTE
        inside = np.logical_xor.accumulate(quotes) ^ is_inside  # a string
        steps = _STEPS[characters] * ~inside
        depths = depth + np.cumsum(steps, dtype=np.int32)
        if depths.max() > MAX_JSON_DEPTH:
            raise InvalidRequestError(f"{what} is nested more than {MAX_JSON_DEPTH} levels deep", param=param)
        num_items += int(np.count_nonzero(steps > 0) + np.count_nonzero(quotes & inside))
        num_items += int(np.count_nonzero(_IS_FRACTION[characters] & ~inside))
        depth, is_inside = depths[-1], inside[-1]
        if num_items > MAX_JSON_ITEMS:
            raise InvalidRequestError(
                f"{what} has more than {MAX_JSON_ITEMS} objects, arrays, strings and fractions", param=param
            )


def parse_schema(text: str, param: str) -> Any:
    """The JSON of a schema, within bounds.

    Raises InvalidRequestError for what is no JSON, too deep, or holds a number that answers could not be held to
    exactly.
    """
    check_json(text.encode(errors="replace"), "the JSON schema", param)
    try:
        schema = json.loads(text, parse_float=_decimal, parse_constant=_no_json)
    except ValueError as error:
        raise InvalidRequestError(f"the JSON schema is not JSON: {error}", param=param) from None
    check_numbers(schema, param)
    return schema


def without_annotations(schema: Any, *, is_by_name: bool = False) -> Any:
    """The schema without what binds no answer: words for readers, which make most of many tools' schemas, and formats
    that JSON Schema does not define, such as pydantic's `password`, which the grammar library would refuse.
    is_by_name: its keys are names of the caller's."""
    match schema:
        case Mapping():
            return {
                key: inner
                if key in _VALUES and not is_by_name
                else without_annotations(inner, is_by_name=key in _SCHEMAS_BY_NAME and not is_by_name)
                for key, inner in schema.items()
                if is_by_name or not _is_annotation(key, inner)
            }
        case list():
            return [without_annotations(inner) for inner in schema]
    return schema


def _is_annotation(keyword: str, value: Any) -> bool:
    """What is no text may be a schema of that name, which a reference leads to."""
    return isinstance(value, str) and (keyword in _WORDS or (keyword == "format" and value not in _FORMATS))


def schema_text(schema: Any) -> str:
    """The JSON of a schema: decimals become floats, without loss where check_numbers lets them pass."""
    return json.dumps(schema, default=_nearest_float)


def _nearest_float(number: Decimal) -> float:
    value = float(number)
    return value if math.isfinite(value) else 0


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent that not even decimals have
        return Decimal("NaN")


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")


def check_numbers(schema: Any, param: str) -> None:
    """Raises InvalidRequestError for a JSON schema with a number that answers could not be held to exactly.

    schema: with decimals for what is no integer; a float may have been another number.
    """
    for keyword, number in _binding_numbers(schema):
        value = float(number) if isinstance(number, Decimal) else number
        # At the limit a float may have been the number beyond it, and what an exclusive bound admits is beyond it.
        is_strict = keyword in _EXCLUSIVE or not isinstance(number, int)
        limit = MAX_EXACT_NUMBER - 1 if is_strict else MAX_EXACT_NUMBER
        if abs(value) > limit or (isinstance(number, Decimal) and Decimal(repr(value)) != number):
            raise InvalidRequestError(
                f"the JSON schema cannot be used: {ascii(keyword)[:64]} holds a number that cannot be kept exactly "
                "(beyond 2^53, or with more digits than a 64-bit float has): leave the bound out, or use a string with "
                "a pattern",
                param=param,
            )


def _binding_numbers(schema: Any) -> Iterator[tuple[str, float | Decimal]]:
    """Each number that binds an answer, with its keyword."""
    waiting: list[tuple[str, Any, bool]] = [("the schema", schema, False)]
    while waiting:
        keyword, value, is_by_name = waiting.pop()
        match value:
            case bool() | str() | None:
                pass
            case int() | float() | Decimal():
                yield keyword, value
            case Mapping() if keyword in _VALUES:
                waiting.extend((keyword, inner, False) for inner in value.values())
            case Mapping():
                waiting.extend(
                    (key if not is_by_name else "the schema", inner, key in _SCHEMAS_BY_NAME and not is_by_name)
                    for key, inner in value.items()
                    if is_by_name or key not in _ANNOTATIONS
                )
            case _:
                waiting.extend((keyword, inner, False) for inner in value)


def embedded_schemas(lark: str, param: str) -> Iterator[Any]:
    """The JSON schemas that a Lark grammar holds (`%json {...}`). Raises InvalidRequestError as parse_schema does."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"%json\s*(?=\{)", lark):
        try:
            _, end = decoder.raw_decode(lark, found.end())
        except RecursionError:
            end = len(lark)
        except ValueError:
            continue  # no JSON: the compiler says so
        yield parse_schema(lark[found.end() : end], param)
