"""Hypothesis strategies of protobuf messages: any that goes over the wire."""

import math
from typing import Any

import hypothesis.strategies as st
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Kind = FieldDescriptor
_FLOATS = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0])
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    Kind.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 3),
    Kind.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 3),
    Kind.CPPTYPE_UINT32: st.integers(0, 2**32 - 1) | st.integers(0, 9),
    Kind.CPPTYPE_UINT64: st.integers(0, 2**64 - 1) | st.integers(0, 9),
    Kind.CPPTYPE_DOUBLE: st.floats() | _FLOATS,
    Kind.CPPTYPE_FLOAT: _FLOATS,
    Kind.CPPTYPE_BOOL: st.booleans(),
    # Open enums: unknown numbers get through.
    Kind.CPPTYPE_ENUM: st.integers(-3, 9) | st.sampled_from([2**31 - 1, -(2**31)]),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], depth: int = 5) -> Message:
    """Any message of a kind that goes over the wire."""
    message = kind()
    _fill(draw, message, depth)
    return kind.FromString(message.SerializeToString())


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    for field in draw(st.lists(st.sampled_from(fields), unique_by=lambda each: each.name)) if fields else ():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                _add(draw, getattr(message, field.name), field, depth)
        elif field.message_type is None:
            setattr(message, field.name, draw(_scalar(field)))
        elif depth:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(draw, inner, depth - 1)


def _add(draw: st.DrawFn, values: Any, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is None:
        values.append(draw(_scalar(field)))
    elif depth:
        _fill(draw, values.add(), depth - 1)


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.cpp_type == Kind.CPPTYPE_STRING:
        return st.binary(max_size=24) if field.type == Kind.TYPE_BYTES else st.text(max_size=12)
    return _SCALARS[field.cpp_type]
