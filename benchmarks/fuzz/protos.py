"""Random messages of any kind of protobuf, and bytes that were one."""

from __future__ import annotations

import math
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Kind
from google.protobuf.message import Message

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-46, 1e39, 3.4e38, -1e9, 1.0001, math.nan, math.inf, -math.inf]
EDGES = {
    Kind.CPPTYPE_INT32: [-(2**31), 2**31 - 1],
    Kind.CPPTYPE_INT64: [-(2**63), 2**63 - 1],
    Kind.CPPTYPE_UINT32: [2**31, 2**32 - 1],
    Kind.CPPTYPE_UINT64: [2**32, 2**63, 2**64 - 1],
    Kind.CPPTYPE_ENUM: [-1, 99, 2**31 - 1],
}
TEXTS = [
    "",
    "a",
    "{}",
    "\x00",
    "\u00e9\u4e2d\U0001f600",
    "x" * 200,
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
]


def fill(rng: random.Random, message: Message, depth: int = 6, share: float = 0.6) -> None:
    """Set about that share of the fields, in what is below, too."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() > share:
            continue
        if field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(rng.choice([0, 1, 1, 2, 3, 8])):
                if field.message_type is None:
                    values.append(scalar(rng, field))
                elif depth:
                    fill(rng, values.add(), depth - 1, share)
        elif field.message_type is None:
            setattr(message, field.name, scalar(rng, field))
        elif depth:
            inner = getattr(message, field.name)
            inner.SetInParent()
            fill(rng, inner, depth - 1, share)


def scalar(rng: random.Random, field: Kind) -> Any:
    """Mostly small: what refers to nothing is refused at once."""
    if field.cpp_type == Kind.CPPTYPE_STRING:
        return rng.randbytes(rng.choice([0, 1, 4, 64])) if field.type == Kind.TYPE_BYTES else rng.choice(TEXTS)
    if field.cpp_type == Kind.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type in (Kind.CPPTYPE_FLOAT, Kind.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS) if rng.random() < 0.3 else rng.random()
    if rng.random() < 0.05:
        return rng.choice(EDGES[field.cpp_type])
    if field.enum_type is not None:
        return rng.choice([value.number for value in field.enum_type.values][rng.random() < 0.9 :])
    return rng.choice([0, 1, 1, 2, 3, 4, 8, 16, 60, 100])


def garble(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Bits flipped, and parts left out, doubled or taken from another message."""
    result = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        start = rng.randint(0, len(result))
        end = min(len(result), start + rng.choice([1, 2, 4, 16, 64]))
        match rng.randrange(6):
            case 0 if end > start:
                result[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
            case 1:
                del result[start:end]
            case 2:
                result[start:start] = result[start:end]
            case 3:
                place = rng.randint(0, len(other))
                result[start:end] = other[place : place + rng.choice([1, 4, 16, 64])]
            case 4:
                result[start:start] = rng.randbytes(rng.choice([1, 2, 8]))
            case _:
                result[start:end] = b"\xff" * (end - start) + rng.choice([b"", b"\x01"])
    return bytes(result)
