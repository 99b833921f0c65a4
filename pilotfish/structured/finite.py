"""JSON schemas with a reference that no finite document follows: one that only leads back to itself.

The grammar library refuses such a schema as a whole; within another one, an answer would come to a place where nothing
is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import binding_values

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
