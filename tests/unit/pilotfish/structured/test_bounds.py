"""JSON is measured before a parser that recurses sees it."""

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import MAX_JSON_DEPTH, check_json_depth


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
    check_json_depth(text, "the body")


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
        check_json_depth(text, "the body", "metadata")
    assert caught.value.param == "metadata"
