"""What JSON of strangers may be, looked at before a parser that would recurse or round gets to see it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn
from urllib.parse import unquote, urldefrag, urljoin

import numpy as np

from pilotfish.errors import InvalidRequestError

MAX_JSON_DEPTH = 100
"""Objects and arrays within each other. Python's parsers give up at some 1,000, the grammar library's at 128."""

MAX_EXACT_NUMBER = 2**53
"""Up to here every integer is a float of its own; beyond it the grammar library would force another number."""

_QUOTE, _OPEN, _CLOSE = ord('"'), (ord("["), ord("{")), (ord("]"), ord("}"))

_SCHEMAS_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose keys are names of the caller's."""
_ANNOTATIONS = frozenset(("default", "examples", "example", "title", "description", "$comment"))
"""Keywords that bind no answer."""
_VALUES = frozenset(("const", "enum"))
"""Keywords that hold documents, whose keys are no keywords."""
_EXCLUSIVE = frozenset(("exclusiveMinimum", "exclusiveMaximum"))


def check_json_depth(text: bytes, what: str, param: str | None = None) -> None:
    """Raises InvalidRequestError for JSON that is nested more than MAX_JSON_DEPTH deep. 4 MB take 0.1 s at most."""
    if text.count(b"[") + text.count(b"{") <= MAX_JSON_DEPTH:
        return  # nearly always
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # so that each quote begins or ends a string
    characters = np.frombuffer(text, np.uint8)
    steps = np.isin(characters, _OPEN).astype(np.int8) - np.isin(characters, _CLOSE)
    steps[np.logical_xor.accumulate(characters == _QUOTE)] = 0  # within a string
    if np.cumsum(steps, dtype=np.int32).max() > MAX_JSON_DEPTH:
        raise InvalidRequestError(f"{what} is nested more than {MAX_JSON_DEPTH} levels deep", param=param)


def parse_schema(text: str, param: str) -> Any:
    """The JSON of a schema, within bounds.

    Raises InvalidRequestError for what is no JSON, too deep, or holds a number that answers could not be held to
    exactly.
    """
    check_json_depth(text.encode(errors="replace"), "the JSON schema", param)
    try:
        schema = json.loads(text, parse_float=_decimal, parse_constant=_no_json)
    except ValueError as error:
        raise InvalidRequestError(f"the JSON schema is not JSON: {error}", param=param) from None
    check_numbers(schema, param)
    return schema


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
    for keyword, number in binding_values(schema):
        if isinstance(number, str):
            continue
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


def binding_values(schema: Any) -> Iterator[tuple[str, str | float | Decimal]]:
    """Each text and number that binds an answer, with its keyword."""
    waiting: list[tuple[str, Any, bool]] = [("the schema", schema, False)]
    while waiting:
        keyword, value, is_by_name = waiting.pop()
        match value:
            case bool() | None:
                pass
            case str() | int() | float() | Decimal():
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


_NAMELESS = "https://localhost/"
"""What the references of a schema without an address of its own are relative to."""


def check_finite(schema: Any) -> None:
    """Raises InvalidRequestError, naming the reference, if an answer that came to it could never end."""
    references = {reference: _resolve(schema, reference) for reference in _references(schema)}
    finite: set[str] = set()
    waiting, num_before = list(references), -1
    while len(waiting) != num_before:
        num_before = len(waiting)
        for name in reversed(waiting):  # there and back: a chain is short in one of the two directions
            if _is_finite(references[name], finite, references):
                finite.add(name)
        waiting = [name for name in reversed(waiting) if name not in finite]
    for name in references:
        if name not in finite:
            raise InvalidRequestError(
                f"the JSON schema cannot be used: its reference {name!r} leads back to itself without an end",
                param="grammar",
            )


def _references(schema: Any) -> Iterator[str]:
    return (str(value) for keyword, value in binding_values(schema) if keyword == "$ref")


def _resolve(schema: Any, reference: str) -> Any:
    """The schema that a reference leads to; True, which anything follows, if it leads out of this one or nowhere."""
    name = schema.get("$id") if isinstance(schema, Mapping) else None
    try:
        base, _ = urldefrag(urljoin(_NAMELESS, name if isinstance(name, str) else ""))
        document, fragment = urldefrag(urljoin(base, reference))
    except ValueError:  # no address: the library says so
        return True
    if document != base:
        return True
    return _at_pointer(schema, unquote(fragment)) if fragment[:1] in ("", "/") else _at_anchor(schema, fragment)


def _at_pointer(schema: Any, pointer: str) -> Any:
    """By a JSON pointer (RFC 6901)."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, Mapping) and name in schema:
            schema = schema[name]
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return True
    return schema


def _at_anchor(schema: Any, anchor: str) -> Any:
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if value.get("$anchor") == anchor:
                return value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return True


def _is_finite(schema: Any, finite: set[str], references: Mapping[str, Any]) -> bool:
    """Whether a document follows the schema that needs only references known to be finite."""
    if not isinstance(schema, Mapping):
        return True
    reference = schema.get("$ref")
    if reference in references and reference not in finite:
        return False
    if not all(_is_finite(each, finite, references) for each in _listed(schema.get("allOf"))):
        return False
    for choice in ("anyOf", "oneOf"):
        options = _listed(schema.get(choice))
        if options and not any(_is_finite(each, finite, references) for each in options):
            return False
    return all(_is_finite(each, finite, references) for each in _needed(schema))


def _needed(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Schemas of what every document must hold, as far as its type leaves no way around."""
    if schema.get("type") in ("object", ["object"]):
        properties, others = schema.get("properties"), schema.get("additionalProperties", True)
        known = properties if isinstance(properties, Mapping) else {}
        yield from (known.get(name, others) for name in _listed(schema.get("required")) if isinstance(name, str))
    if schema.get("type") in ("array", ["array"]):
        first = _listed(schema.get("prefixItems"))
        min_items = schema.get("minItems")
        num_needed = min_items if isinstance(min_items, int) else 0
        yield from first[:num_needed]
        if num_needed > len(first):
            yield schema.get("items", True)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
