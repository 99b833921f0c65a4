"""How many items a message has, looked at before a decoder makes an object of each."""

from __future__ import annotations

import asyncio

from google.protobuf.descriptor import Descriptor

from pilotfish.errors import InvalidRequestError

_FIELDS_PER_PASS = 1000
"""Looked at for some 0.5 ms before the loop is given back."""
_MIN_ITEM_BYTES = 2
_MORE, _MAX_SHIFT = 0x80, 63
"""The bit that says that another byte follows; ten of them have 64 bits."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


async def check_items(data: bytes, kind: Descriptor, most: int) -> None:
    """Raises InvalidRequestError where messages and texts within the message are more than `most`. What is no message
    of this kind is for the decoder to refuse.

    4 MB of empty list items would become 94 MB, and hold the loop for 90 ms (measured).
    """
    if len(data) <= _MIN_ITEM_BYTES * most:
        return  # nearly always
    num_fields = num_items = 0
    waiting: list[tuple[int, int, Descriptor]] = [(0, len(data), kind)]
    try:
        while waiting:
            at, end, kind = waiting.pop()
            while at < end:
                num_fields += 1
                if num_fields % _FIELDS_PER_PASS == 0:
                    await asyncio.sleep(0)
                tag, at = _varint(data, at)
                begin, at = _value(data, at, tag & 7)
                if tag & 7 == _LENGTH:
                    field = kind.fields_by_number.get(tag >> 3)
                    num_items += 1
                    if num_items > most:
                        raise InvalidRequestError(f"the request's lists hold more than {most} items")
                    if field is not None and field.message_type is not None:
                        waiting.append((begin, at, field.message_type))
    except IndexError:
        return


def _value(data: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Where a field's value begins and ends, which is within the data or beyond."""
    if wire_type == _VARINT:
        return at, _varint(data, at)[1]
    if wire_type == _LENGTH:
        num_bytes, at = _varint(data, at)
        return at, at + num_bytes
    return at, at + {_FIXED64: 8, _FIXED32: 4}.get(wire_type, 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Its value, and where it ends. Raises IndexError at the data's end, or where it is none."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise IndexError
