"""Random JSON schemas whose documents are bounded, so that every answer can be finished."""

import random
from typing import Any

_NAMES = ("name", "age", "city", "tags", "price", "active", "id", "kind", "notes", "size", "owner", "color")
_WORDS = ("red", "green", "blue", "small", "large", "new", "old", "yes", "no", "unknown")
_PATTERNS = ("^[a-z]{2,6}$", "^[A-Z]{3}-[0-9]{2}$", "^(yes|no|maybe)$", "^#[0-9a-f]{6}$")


def random_object_schema(seed: int, *, max_depth: int = 3) -> dict[str, Any]:
    """A schema of objects; the same for a seed in every process."""
    return _object(random.Random(seed), max_depth)


def _object(rng: random.Random, max_depth: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randint(1, 4))
    required = [name for name in names if rng.random() < 0.8]
    return {
        "type": "object",
        "properties": {name: _value(rng, max_depth - 1) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _value(rng: random.Random, max_depth: int) -> dict[str, Any]:
    leaves = (_string, _integer, _number, _boolean, _enum, _pattern, _nullable)
    if max_depth <= 0 or rng.random() < 0.6:
        return rng.choice(leaves)(rng)
    return _object(rng, max_depth) if rng.random() < 0.5 else _array(rng, max_depth)


def _array(rng: random.Random, max_depth: int) -> dict[str, Any]:
    least = rng.randint(0, 2)
    return {
        "type": "array",
        "items": _value(rng, max_depth - 1),
        "minItems": least,
        "maxItems": least + rng.randint(0, 2),
    }


def _string(rng: random.Random) -> dict[str, Any]:
    return {"type": "string", "maxLength": rng.randint(1, 16)}


def _integer(rng: random.Random) -> dict[str, Any]:
    least = rng.randint(-50, 50)
    return {"type": "integer", "minimum": least, "maximum": least + rng.randint(0, 1000)}


def _number(rng: random.Random) -> dict[str, Any]:
    # Without a step a weak model may write digits for ever.
    return {"type": "number", "minimum": 0, "maximum": rng.randint(1, 100), "multipleOf": 0.25}


def _boolean(rng: random.Random) -> dict[str, Any]:
    return {"type": "boolean"}


def _enum(rng: random.Random) -> dict[str, Any]:
    return {"enum": [*rng.sample(_WORDS, rng.randint(1, 4)), *rng.sample((None, 1, 2.5, True), rng.randint(0, 1))]}


def _pattern(rng: random.Random) -> dict[str, Any]:
    return {"type": "string", "pattern": rng.choice(_PATTERNS)}


def _nullable(rng: random.Random) -> dict[str, Any]:
    return {"anyOf": [{"type": "null"}, _string(rng) if rng.random() < 0.5 else _integer(rng)]}
