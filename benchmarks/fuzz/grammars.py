"""JSON schemas, regular expressions and Lark grammars that strain whoever compiles them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support

from fuzz.values import NUMBERS, TEXTS, plant, written
from pilotfish.types import Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema

KEYWORDS = ["minimum", "maximum", "multipleOf", "pattern", "items", "minItems", "$ref", "const", "enum", "allOf", "not"]
SIZES = [0, 1, 2, 7, 100, 10_000, 1_000_000, 2**31, 2**32, 2**63, 2**64 + 1, -1]
FORMATS = [
    "date",
    "time",
    "date-time",
    "email",
    "uuid",
    "ipv4",
    "ipv6",
    "uri",
    "hostname",
    "duration",
    "regex",
    "nonsense",
]
REFERENCES = ["#", "#/", "#/$defs/a", "#/$defs/b", "#/properties/x", "#/$defs/missing", "http://a/b", "#a", ""]
OPTIONS = ["", "", "", "", "[capture]", "[max_tokens=3]", "[lazy]", '[suffix="a"]', '[stop="b"]', "[temperature=0.5]"]
DIRECTIVES = [
    "%import common.INT",
    "%import common.WORD -> W",
    "%ignore /[ \\t]+/",
    "%llguidance {}",
    '%llguidance {"no_forcing": true, "allow_initial_skip": true}',
    '%llguidance {"nonsense": 1}',
    "%declare X",
    "%override start",
    "%extend start",
]
ODD = 0.08
"""How often something stands where it must not."""
FEW = [0, 1, 2, 3, 17]
ATOMS = [
    "a",
    "b",
    ".",
    "[a-z]",
    "[^a]",
    "\\d",
    "\\w",
    "\\s",
    "\\p{L}",
    "\\P{Lu}",
    "\\pN",
    "[[:alpha:]]",
    "\u00e9",
    "\U0001f600",
]
ODD_ATOMS = [
    "^",
    "$",
    "\\b",
    "\\B",
    "\\1",
    "\\k<n>",
    "\\x00",
    "\\u{10ffff}",
    "[]",
    "[z-a]",
    "[\\d-z]",
    "(",
    ")",
    "",
    "\\",
    "&",
    "~",
]
GROUPS = ["(", "(?:", "(?i:", "(?P<n>", "(?s:"]
ODD_GROUPS = ["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?u-i:", "(?#"]
BIG_NESTING = (100, 990, 5_000)


def random_grammar(rng: random.Random) -> Grammar:
    """Of any kind."""
    kind, make = rng.choice(MAKERS)
    return Grammar(kind, make(rng))


def schema_text(rng: random.Random) -> str:
    """A schema of our own, or a sensible one with something strange in it."""
    if rng.random() < 0.02:
        depth = rng.choice(BIG_NESTING)
        opening, closing = rng.choice(
            [('{"items":', "}"), ('{"not":', "}"), ('{"anyOf":[', "]}"), ('{"enum":[[', "]]}")]
        )
        return opening * depth + "true" + closing * depth
    if rng.random() < 0.5:
        schema: Any = random_object_schema(rng.getrandbits(32))
        for _ in range(rng.randint(1, 3)):
            plant(rng, schema, KEYWORDS)
    else:
        schema = _schema(rng, 4)
        if isinstance(schema, dict) and rng.random() < 0.5:
            schema["$defs"] = {"a": _schema(rng, 2), "b": _schema(rng, 2)}
    return written(rng, schema)


def regex(rng: random.Random, depth: int = 4) -> str:
    """An expression, now and then of a hundred alternatives or repeats in repeats."""
    if rng.random() < 0.02:
        size = rng.choice(BIG_NESTING)
        return rng.choice(["(" * size + "a" + ")" * size, "|" * size, "a?" * size + "a" * size, "(a|b)" * size])
    return "|".join(
        "".join(_piece(rng, depth) for _ in range(rng.randint(0, 4))) for _ in range(rng.choice([1, 1, 1, 3]))
    )


def lark(rng: random.Random) -> str:
    """Rules and terminals that name each other, themselves, and what is not there."""
    if rng.random() < 0.02:
        size = rng.choice(BIG_NESTING)
        return rng.choice(
            [
                "start: " + "(" * size + '"a"' + ")" * size,
                "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(size)) + f'\nr{size}: "a"',
                "start: T0\n" + "\n".join(f"T{n}: T{n + 1}" for n in range(size)) + f'\nT{size}: "a"',
                "start: " + " | ".join(f'"{n}"' for n in range(size)),
            ]
        )
    rules = ["start", "a", "b", "c"][: rng.randint(1, 4)]
    terminals = ["T", "U", "V"][: rng.randint(0, 3)]
    names = [*rules, *terminals]
    lines = [
        f"{name}{rng.choice(['', '', '', '[capture]', '[max_tokens=3]'])}: {_body(rng, names, 3)}" for name in rules
    ]
    lines += [f"{name}: {_body(rng, terminals or names, 2)}" for name in terminals]
    lines += rng.sample(DIRECTIVES, rng.choice([0, 0, 0, 0, 0, 1]))
    rng.shuffle(lines)
    return "\n".join(lines)


def _schema(rng: random.Random, depth: int) -> Any:
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice([True, False, {}, {"type": "null"}, {"$ref": rng.choice(REFERENCES)}])
    parts = [_numbers, _numbers, _strings, _arrays, _objects, _values, _combined]
    schema: dict[str, Any] = {}
    for part in rng.sample(parts, rng.choice([1, 1, 1, 2])):
        schema.update(part(rng, depth - 1))
    return schema


def _numbers(rng: random.Random, _: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": rng.choice(["integer", "integer", "number"])}
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if rng.random() < 0.4:
            schema[name] = rng.choice(NUMBERS)
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([*NUMBERS, 2, 3, 0.25])
    if "minimum" in schema and rng.random() < 0.3:
        schema["maximum"] = schema["minimum"] + rng.choice([0, 1, -1, 0.5])
    return schema


def _strings(rng: random.Random, _: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for name, values in (("minLength", SIZES), ("maxLength", SIZES), ("format", FORMATS)):
        if rng.random() < 0.3:
            schema[name] = rng.choice(values)
    if rng.random() < 0.5:
        schema["pattern"] = regex(rng, 3)
    return schema


def _arrays(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if rng.random() < 0.7:
        schema["items"] = _schema(rng, depth)
    if rng.random() < 0.3:
        schema["prefixItems"] = [_schema(rng, depth) for _ in range(rng.randint(0, 3))]
    for name in ("minItems", "maxItems"):
        if rng.random() < 0.3:
            schema[name] = rng.choice(SIZES)
    return schema


def _objects(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(["x", "y", *TEXTS], rng.randint(0, 4))
    schema: dict[str, Any] = {"type": "object", "properties": {name: _schema(rng, depth) for name in names}}
    schema["required"] = rng.sample([*names, "absent"], rng.randint(0, len(names)))
    if rng.random() < 0.4:
        schema["additionalProperties"] = _schema(rng, depth)
    if rng.random() < 0.2:
        schema["patternProperties"] = {regex(rng, 2): _schema(rng, depth)}
    for name in ("minProperties", "maxProperties"):
        if rng.random() < 0.15:
            schema[name] = rng.choice(SIZES)
    return schema


def _values(rng: random.Random, _: int) -> dict[str, Any]:
    values: list[Any] = [*NUMBERS, *TEXTS, None, True, [], {}, [1, [2]], {"x": NUMBERS[-1]}]
    if rng.random() < 0.5:
        return {"const": rng.choice(values)}
    return {"enum": rng.sample(values, rng.randint(0, 5)) * rng.choice([1, 1, 2])}


def _combined(rng: random.Random, depth: int) -> dict[str, Any]:
    name = rng.choice(["allOf", "anyOf", "oneOf", "not", "if", "$ref"])
    if name == "$ref":
        return {name: rng.choice(REFERENCES)}
    if name == "not":
        return {name: _schema(rng, depth)}
    if name == "if":
        return {name: _schema(rng, depth), "then": _schema(rng, depth), "else": _schema(rng, depth)}
    return {name: [_schema(rng, depth) for _ in range(rng.randint(0, 3))]}


def _piece(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.5:
        atom = rng.choice(ODD_ATOMS if rng.random() < ODD else ATOMS)
    else:
        atom = rng.choice(ODD_GROUPS if rng.random() < ODD else GROUPS) + regex(rng, depth - 1) + ")"
    if rng.random() < 0.4:
        repeats = [
            "*",
            "+",
            "?",
            "*?",
            f"{{{rng.choice(FEW)}}}",
            f"{{{rng.choice(FEW)},}}",
            f"{{0,{rng.choice(SIZES[:7])}}}",
        ]
        odd = ["++", f"{{{rng.choice(SIZES)},{rng.choice(SIZES)}}}", f"{{{rng.choice(SIZES)},}}", "{,3}", "**"]
        atom += rng.choice(odd if rng.random() < ODD else repeats)
    return atom


def _body(rng: random.Random, names: list[str], depth: int) -> str:
    """The right-hand side of a rule, or, where all names are terminals, of a terminal."""
    alternatives = [
        " ".join(_item(rng, names, depth) for _ in range(rng.choice([1, 1, 2, 3])))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    return " | ".join([*alternatives, *rng.choice([[], [], [], [""]])])


def _item(rng: random.Random, names: list[str], depth: int) -> str:
    is_terminal = names[0].isupper()
    if rng.random() < ODD:
        item = rng.choice(
            ["missing", "MISSING", "<|im_end|>", "<[0-9]>", "<nonsense>", '"a"..', "'a'", "", '"\\x00"', "start"]
        )
    elif (choice := rng.random()) < 0.35:
        item = rng.choice(names)
    elif choice < 0.6:
        item = rng.choice(['"a"', '"ab"', '""', '"a"i', '"\\u00e9"', '"a".."z"'])
    elif choice < 0.8 or depth <= 0:
        item = f"/{regex(rng, 2).replace('/', '') or 'a'}/{rng.choice(['', '', '', 'i', 's'])}"
    elif choice < 0.86 and not is_terminal:
        item = f"%json {json.dumps(_schema(rng, 2))}"
    elif choice < 0.9 and not is_terminal:
        item = f"%lark {{\n{lark(rng) if depth > 2 else 'start: /a/'}\n}}"
    else:
        item = f"({_body(rng, names, depth - 1)})"
    if rng.random() < 0.3:
        repeats = ["*", "+", "?", f"{{{rng.choice(FEW)}}}", f"{{0,{rng.choice(SIZES[:7])}}}"]
        odd = [f"{{{rng.choice(SIZES)},{rng.choice(SIZES)}}}", f"~{rng.choice(SIZES)}", f"~0..{rng.choice(SIZES)}"]
        item += rng.choice(odd if rng.random() < ODD else repeats)
    return item


MAKERS: list[tuple[GrammarKind, Callable[[random.Random], str]]] = [
    (GrammarKind.JSON_SCHEMA, schema_text),
    (GrammarKind.REGEX, regex),
    (GrammarKind.LARK, lark),
]
