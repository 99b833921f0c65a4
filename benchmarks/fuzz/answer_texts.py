"""What generated answers are made of: bytes that a model might say."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from fuzz.frames import EDITS, garbled

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


def _call(names: tuple[str, str], text: str, value: Any, ascii_only: bool, look: dict[str, Any], space: bytes) -> bytes:
    name, arguments = names
    written = json.dumps({"name": name, arguments: {text: value}}, ensure_ascii=ascii_only, **look)
    return b"<tool_call>" + space + written.encode() + space + b"</tool_call>"


RUNS = st.lists(st.sampled_from(FRAGMENTS), max_size=4).map(b"".join)
TEXTS = RUNS.map(lambda data: data.decode(errors="ignore")) | RUNS.map(lambda data: data.decode(errors="replace"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, -1, 10**25, 1.5e300, -0.0]) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS, inner, max_size=3)
        # JSON within JSON, as models write code and calls into arguments.
        | st.builds(lambda name, value: json.dumps({"name": name, "arguments": value}), TEXTS, inner)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from([("find", "arguments"), ("find", "arguments"), ("find", "parameters"), ("<tool_", "arguments")])
LOOKS = st.sampled_from([{"indent": 1}, {"separators": (", ", ": ")}, {"separators": (",", ":")}])
CALLS = st.builds(_call, NAMES, TEXTS, VALUES, st.booleans(), LOOKS, st.sampled_from([b"\n", b"", b" \t\r\n"]))
DAMAGED = st.builds(garbled, CALLS, EDITS)
ANSWERS = st.lists(CALLS | CALLS | DAMAGED | RUNS, min_size=1, max_size=6).map(b"".join)
"""Calls with arguments of any kind, whole or damaged, between fragments."""
