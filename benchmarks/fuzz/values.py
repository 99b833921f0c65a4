"""JSON that strains whoever reads it: numbers at the edges of their types, odd texts, deep nesting, doubled keys."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass
from typing import Any

EDGES = [0, 1, 2, 2**31, 2**32, 2**53, 2**63, 2**64, 10**29]
NUMBERS: list[Any] = [sign * (edge + step) for edge in EDGES for step in (-1, 0, 1) for sign in (1, -1)]
NUMBERS += [0.1, 0.5, -0.0, 1e-46, 5e-324, 1e39, 3.5e38, 1.7e308, -1e39, 123456.789]
TEXTS = [
    "",
    "a",
    "ab",
    "\x00",
    "\u00e9",
    "\u4e2d\u6587",
    "\U0001f600",
    "\ud800",
    "a\udfffb",
    "\\",
    '"',
    "/",
    "\n",
    "a" * 300,
    "\u00e9" * 60,
]


@dataclass(frozen=True)
class Raw:
    """JSON, or what passes for it, as it is to be written."""

    text: str


RAW_TEXTS = [
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "9" * 400, "0x1", "01", "1.", ".5", "+1", "-"),
    *("[" * depth + "]" * depth for depth in (20, 990, 20_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (20, 990, 20_000)),
    *('{"type":"object","properties":{"a":' * depth + "{}" + "}}" * depth for depth in (20, 400)),
    *('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\x"', '"\t"', "'a'", "nul", "tru", "//", "", ",", "{", "[", '"'),
    *('"' + character * size + '"' for character in ("a", "\u00e9", "\U0001f600", " ") for size in (1000, 100_000)),
    "[" + ",".join(["1"] * 10_000) + "]",
]
RAW = [Raw(text) for text in RAW_TEXTS]
EVERYDAY = [None, True, False, [], {}, [[]], [{}], [None], {"": 1}, {"a": None}, "1", [1, "a"], {"type": "text"}]


def strange(rng: random.Random) -> Any:
    """Something that does not belong here."""
    kinds = [NUMBERS, NUMBERS, TEXTS, EVERYDAY, RAW]
    return copy.deepcopy(rng.choice(rng.choice(kinds)))


def plant(rng: random.Random, document: Any, keys: list[str]) -> None:
    """Change one place of a document: its value, its key, whether it is there. keys: some that may be new."""
    places: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        value = stack.pop()
        inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        places += [(value, key) for key, _ in inner]
        stack += [child for _, child in inner if isinstance(child, dict | list)]
    if not places:
        return
    holder, key = rng.choice(places)
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice([*keys, *TEXTS])] = strange(rng)
        case 2:
            holder[key] = [holder[key]]
        case 3 if isinstance(holder[key], list):
            holder[key] = holder[key] * rng.choice([2, 20])
        case 4 if isinstance(holder[key], str):
            holder[key] += rng.choice(TEXTS)
        case _:
            holder[key] = strange(rng)


def written(rng: random.Random, value: Any) -> str:
    """The document as JSON; now and then a key comes twice."""
    match value:
        case Raw():
            return value.text
        case dict():
            pairs = [f"{json.dumps(key)}: {written(rng, inner)}" for key, inner in value.items()]
            if pairs and rng.random() < 0.01:
                pairs.append(rng.choice(pairs))
            return "{" + ", ".join(pairs) + "}"
        case list():
            return "[" + ", ".join(written(rng, inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=rng.random() < 0.9)
