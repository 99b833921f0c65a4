"""Schemas that no finite document follows are told from recursive ones that some do."""

from typing import Any

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import check_finite

LIST = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/list"}}}


def closed(definitions: dict[str, Any], **schema: Any) -> dict[str, Any]:
    return {"$defs": definitions, **schema}


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"$ref": "#"}, "'#'"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}, "'#/$defs/x'"),
        (closed({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, **{"$ref": "#/$defs/a"}), "'#/$defs/"),
        ({"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}, "'#'"),
        (closed({"list": LIST}, **{"$ref": "#/$defs/list"}), "'#/$defs/list'"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "'#'"),
        ({"$defs": {"a/b~c d": {"$ref": "#/$defs/a~1b~0c%20d"}}, "$ref": "#/$defs/a~1b~0c%20d"}, "a~1b"),
        ({"items": {"$ref": "#/items"}}, "'#/items'"),
        ({"properties": {"title": {"$ref": "#/properties/title"}}}, "'#/properties/title'"),  # a name, no annotation
        ({"$id": "http://x/a", "items": {"$ref": "http://x/a#/items"}}, "'http://x/a#/items'"),
        ({"items": {"$anchor": "here", "$ref": "#here"}}, "'#here'"),
        ({"type": ["object"], "required": ["a"], "additionalProperties": {"$ref": "#"}}, "'#'"),
    ],
)
def test_what_never_ends_is_refused_by_its_reference(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequestError, match="without an end") as caught:
        check_finite(schema)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {"type": ["object", "null"], "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        closed({"list": {"anyOf": [LIST, {"type": "null"}]}}, **{"$ref": "#/$defs/list"}),
        {"$ref": "#/$defs/missing"},
        closed({str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(3000)}, **{"$ref": "#/$defs/0"}),
        closed({str(n): {"$ref": f"#/$defs/{n - 1}"} for n in range(3000)}, **{"$ref": "#/$defs/2999"}),
        {"$ref": "https://example.org/schema"},
        {"$id": "http://x/a", "properties": {"a": {"$ref": "http://x/b#/properties/a"}}},
        {"items": {"$ref": "#here"}, "$defs": {"a": {"$anchor": "here", "type": "string"}}},
        {"allOf": [{"$ref": "#/$defs/0"}], "$defs": [{"type": "string"}]},
        {"required": 7, "allOf": {}, "anyOf": "x", "type": "object", "properties": []},
    ],
)
def test_what_can_end_passes(schema: Any) -> None:
    check_finite(schema)
