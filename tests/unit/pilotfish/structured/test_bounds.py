"""JSON is measured before a parser that recurses sees it."""

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import MAX_JSON_DEPTH, MAX_JSON_ITEMS, check_json


def nested(depth: int) -> bytes:
    return b'{"a": [1, {}], "b": ' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1",
        nested(MAX_JSON_DEPTH - 2),  # what is beside the innermost is two levels deep
        b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH,
        b"[{}]," * 10_000,
        b'{"a": "' + b"[{" * 5000 + b'"}',
        b'{"a": "' + b'\\"[{' * 5000 + b'"}',
        b'{"a": "\\\\", "b": "' + b"[" * 5000 + b'"}',
    ],
)
def test_what_is_flat_enough_passes(text: bytes) -> None:
    check_json(text, "the body")


@pytest.mark.parametrize(
    "text",
    [
        nested(MAX_JSON_DEPTH),
        b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1),
        b"[" * 20_000,
        b'{"a":' * 990 + b"1" + b"}" * 990,
        b'{"a": "]]]]", "b": ' + b"[" * 990 + b"]" * 990 + b"}",
        b"[" * 990 + b"]" * 2,
    ],
)
def test_what_is_too_deep_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_JSON_DEPTH} levels deep") as caught:
        check_json(text, "the body", "metadata")
    assert caught.value.param == "metadata"


MANY = MAX_JSON_ITEMS + 1


@pytest.mark.parametrize(
    "text", [b"[" + b"{}," * MANY, b'["' + b'a","' * MANY + b'"]', b"[" + b"1.5," * MANY, b"[" + b"1e5," * MANY]
)
def test_what_has_too_many_items_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_JSON_ITEMS} objects") as caught:
        check_json(text, "the body", "metadata")
    assert caught.value.param == "metadata"


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"7," * 2 * MANY + b"7]",
        b'{"a": "' + b"{}1.5e" * MANY + b'"}',
        b'{"a": "' + b'\\"[]' * MANY + b'"}',
        b"[" + b"{}," * (MAX_JSON_ITEMS - 1) + b"]",
    ],
)
def test_characters_of_a_string_and_integers_are_no_items(text: bytes) -> None:
    check_json(text, "the body")
