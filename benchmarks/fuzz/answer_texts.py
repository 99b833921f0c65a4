"""What generated answers are made of: bytes that a model might say."""

from __future__ import annotations

import json
import random
from typing import Any

FRAGMENTS = (
    b"<tool_call>",
    b"\n</tool_call>",
    b"</tool_call>",
    b"<tool_",
    b"call>",
    b'{"name": "find", "arguments": {"a": "',
    b'"}}',
    b'", "b": [1, 2.50, -3e2, true, null]}}',
    b'{"name": "find", "parameters": {}}',
    b'\\"',
    b"\\\\",
    b"\\u00e9\\ud83d\\ude00",
    b"\\ud800",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b" ",
    b"\n",
    b"ab",
    b" a word.",
    b"NaN",
    "né".encode(),
    "中文".encode(),
    "😀😀".encode(),
    "👩‍🔬".encode(),
    "\ufffd\u2028".encode(),
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xe2\x82",
    b"\x80",
    b"\xed\xa0\x80",
    b"\xff",
)


def random_text(chance: random.Random) -> bytes:
    """Calls with arguments of any kind, whole or damaged, between fragments."""
    parts = []
    for _ in range(chance.randint(1, 6)):
        if chance.random() < 0.45:
            parts.append(_call(chance))
        else:
            parts.extend(chance.choices(FRAGMENTS, k=chance.randint(1, 4)))
    return b"".join(parts)


def _call(chance: random.Random) -> bytes:
    name = "arguments" if chance.random() < 0.8 else "parameters"
    spaced = {"indent": 1} if chance.random() < 0.2 else {"separators": chance.choice(((", ", ": "), (",", ":")))}
    value = {"name": _text(chance) if chance.random() < 0.1 else "find", name: {_text(chance): _value(chance, 3)}}
    written = json.dumps(value, ensure_ascii=chance.random() < 0.3, **spaced).encode()
    space = chance.choice((b"\n", b"", b" \t\r\n"))
    data = b"<tool_call>" + space + written + space + b"</tool_call>"
    if chance.random() < 0.25:  # a piece is missing, doubled or put in
        begin = chance.randrange(len(data))
        end = min(len(data), begin + chance.randint(0, 12))
        data = data[:begin] + chance.choice((b"", data[begin:end] * 2, chance.choice(FRAGMENTS))) + data[end:]
    return data


def _value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(8 if depth else 5)
    match kind:
        case 0:
            return chance.choice((None, True, False))
        case 1:
            return chance.choice((0, -1, 10**25, 1.5e300, -0.0))
        case 5:
            return [_value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
        case 6:
            return {_text(chance): _value(chance, depth - 1) for _ in range(chance.randint(0, 3))}
        case 7:  # JSON within JSON, as models write code and calls into arguments
            return json.dumps({"name": _text(chance), "arguments": _value(chance, depth - 1)})
    return _text(chance)


def _text(chance: random.Random) -> str:
    data = b"".join(chance.choices(FRAGMENTS, k=chance.randint(0, 4)))
    return data.decode(errors="ignore" if chance.random() < 0.5 else "replace")
