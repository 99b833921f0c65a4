"""JSON schemas, regular expressions and Lark grammars that strain whoever compiles them: numbers at the edges of their
types, odd texts, deep nesting, huge repeats, references in circles."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from pilotfish.types import Grammar, GrammarKind

Make = Callable[[random.Random, int], Any]
"""make(source of chance, how deep it may nest)."""
EDGES = [0, 1, 2, 2**31, 2**32, 2**53, 2**63, 2**64, 10**29]
ODD_NUMBERS: list[Any] = [sign * (edge + step) for edge in EDGES for step in (-1, 0, 1) for sign in (1, -1)]
ODD_NUMBERS += [0.1, -0.0, 1e-46, 5e-324, 1e39, 3.5e38, 1.7e308, -1e39, 123456.789]
TEXTS = [
    "",
    "a",
    "ab",
    "x",
    "y",
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
]
TEXTS += ["a" * 300, "\u00e9" * 60]
VALUES: list[Any] = [*TEXTS, None, True, [], {}, [1, [2]], {"x": 0.5}]
COUNTS = [0, 1, 2, 7, 100, 10_000, 1_000_000, 2**31, 2**32, 2**63, 2**64 + 1, -1]
FORMATS = ["date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname", "regex", "nonsense"]
REFERENCES = ["#", "#/", "#/$defs/a", "#/$defs/b", "#/properties/x", "#/$defs/missing", "http://a/b", "#a", ""]
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
    "[[:alpha:]]",
    "\u00e9",
    "\U0001f600",
]
ODD_ATOMS = ["", "^", "$", "\\b", "\\1", "\\k<n>", "\\x00", "\\u{10ffff}", "[]", "[z-a]", "(", ")", "\\", "&", "~"]
GROUPS = ["(", "(?:", "(?i:", "(?P<n>", "(?s:"]
ODD_GROUPS = ["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?u-i:", "(?#"]
BIG_NESTING = (100, 990, 5_000)


def random_grammar(rng: random.Random) -> Grammar:
    """Of any kind; a schema as JSON."""
    kind = rng.choice([GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.LARK])
    if kind is GrammarKind.REGEX:
        return Grammar(kind, regex(rng))
    return Grammar(kind, lark(rng) if kind is GrammarKind.LARK else _schema_text(rng))


def _schema_text(rng: random.Random) -> str:
    if rng.random() < 0.02:
        depth = rng.choice(BIG_NESTING)
        pairs = [('{"items":', "}"), ('{"not":', "}"), ('{"anyOf":[', "]}"), ('{"enum":[[', "]]}")]
        opening, closing = rng.choice(pairs)
        return opening * depth + "true" + closing * depth
    return json.dumps(schema(rng))


def schema(rng: random.Random, depth: int = 4) -> Any:
    """Of one type, with some of its keywords."""
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice([True, False, {}, {"type": "null"}, {"$ref": rng.choice(REFERENCES)}])
    kind = rng.choice(list(KEYWORDS))
    makers = KEYWORDS[kind]
    names = rng.sample(list(makers), rng.randint(1, min(4, len(makers))))
    result = {**({"type": kind} if kind else {}), **{name: makers[name](rng, depth - 1) for name in names}}
    if "minimum" in result and rng.random() < 0.3:
        result["maximum"] = result["minimum"] + rng.choice([0, 1, -1, 0.5])
    if depth == 4 and rng.random() < 0.5:
        result["$defs"] = {"a": schema(rng, 2), "b": schema(rng, 2)}
    return result


def _one_of(values: list[Any]) -> Make:
    return lambda rng, _: rng.choice(values)


def _number(rng: random.Random, _: int) -> Any:
    """Mostly one that is not refused at once."""
    return rng.choice([-1, 0, 0.25, 0.5, 1, 2, 3, 100] if rng.random() < 0.9 else ODD_NUMBERS)


def _value(rng: random.Random, depth: int) -> Any:
    return rng.choice(VALUES) if rng.random() < 0.7 else _number(rng, depth)


def _some(make: Make) -> Make:
    return lambda rng, depth: [make(rng, depth) for _ in range(rng.randint(0, 3))]


def _named(make: Make) -> Make:
    return lambda rng, depth: {rng.choice(TEXTS): make(rng, depth) for _ in range(rng.randint(0, 4))}


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


def _piece(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.5:
        atom = rng.choice(ODD_ATOMS if rng.random() < ODD else ATOMS)
    else:
        atom = rng.choice(ODD_GROUPS if rng.random() < ODD else GROUPS) + regex(rng, depth - 1) + ")"
    if rng.random() < 0.4:
        few = rng.choice(FEW)
        repeats = ["*", "+", "?", "*?", f"{{{few}}}", f"{{{few},}}", f"{{0,{rng.choice(COUNTS[:7])}}}"]
        odd = ["++", f"{{{rng.choice(COUNTS)},{rng.choice(COUNTS)}}}", f"{{{rng.choice(COUNTS)},}}", "{,3}", "**"]
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
        item = f"%json {json.dumps(schema(rng, 2))}"
    elif choice < 0.9 and not is_terminal:
        item = f"%lark {{\n{lark(rng) if depth > 2 else 'start: /a/'}\n}}"
    else:
        item = f"({_body(rng, names, depth - 1)})"
    if rng.random() < 0.3:
        repeats = ["*", "+", "?", f"{{{rng.choice(FEW)}}}", f"{{0,{rng.choice(COUNTS[:7])}}}"]
        odd = [f"{{{rng.choice(COUNTS)},{rng.choice(COUNTS)}}}", f"~{rng.choice(COUNTS)}", f"~0..{rng.choice(COUNTS)}"]
        item += rng.choice(odd if rng.random() < ODD else repeats)
    return item


_NUMERIC: dict[str, Make] = dict.fromkeys(
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _number
)
KEYWORDS: dict[str, dict[str, Make]] = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "string": {
        **dict.fromkeys(("minLength", "maxLength"), _one_of(COUNTS)),
        "format": _one_of(FORMATS),
        "pattern": lambda rng, _: regex(rng, 3),
    },
    "array": {
        **dict.fromkeys(("minItems", "maxItems"), _one_of(COUNTS)),
        "items": schema,
        "prefixItems": _some(schema),
    },
    "object": {
        **dict.fromkeys(("minProperties", "maxProperties"), _one_of(COUNTS)),
        "properties": _named(schema),
        "required": _some(_one_of(TEXTS)),
        "additionalProperties": schema,
        "patternProperties": lambda rng, depth: {regex(rng, 2): schema(rng, depth)},
    },
    "": {
        "const": _value,
        "enum": _some(_value),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), _some(schema)),
        **dict.fromkeys(("not", "if", "then", "else"), schema),
        "$ref": _one_of(REFERENCES),
    },
}
"""By type; empty: of any."""
