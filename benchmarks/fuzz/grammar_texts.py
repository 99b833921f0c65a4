"""JSON schemas, regular expressions and Lark grammars that strain whoever compiles them."""

from __future__ import annotations

import json
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz.frames import EDITS, garbled
from fuzz.values import NUMBERS, STRANGE, TEXTS, planted, written
from pilotfish.types import Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema

SIZES = st.sampled_from([0, 1, 2, 7, 100, 10_000, 1_000_000, 2**31, 2**32, 2**63, 2**64 + 1, -1])
FEW = st.sampled_from([0, 1, 2, 3, 17])
DEPTHS = st.sampled_from([100, 990, 5_000])
REFERENCES = ["#", "#/", "#/$defs/a", "#/$defs/b", "#/properties/x", "#/$defs/missing", "http://a/b", "#a", ""]
KEYWORDS = ["minimum", "maximum", "multipleOf", "pattern", "items", "minItems", "$ref", "const", "enum", "allOf", "not"]


def _words(text: str) -> SearchStrategy[str]:
    """One of those between the spaces; what stands at the end is empty."""
    return st.sampled_from(text.split(" "))


def seldom(odd: SearchStrategy[Any], usual: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Something stands where it must not."""
    return st.integers(0, 11).flatmap(lambda choice: odd if choice == 7 else usual)


FORMATS = _words("date time date-time email uuid ipv4 ipv6 uri hostname duration regex nonsense")

# Regular expressions.

ATOMS = _words(r"a b . [a-z] [^a] \d \w \s \p{L} \P{Lu} \pN [[:alpha:]] é 😀")
ODD_ATOMS = _words(r"^ $ \b \B \1 \k<n> \x00 \u{10ffff} [] [z-a] [\d-z] ( ) \ & ~ ")
GROUPS = seldom(_words("(?= (?! (?<= (?<! (?> (?u-i: (?#"), _words("( (?: (?i: (?P<n> (?s:"))
REPEATS = seldom(
    _words("++ {,3} **") | st.builds("{{{},{}}}".format, SIZES, SIZES) | st.builds("{{{},}}".format, SIZES),
    st.sampled_from(["", "", "", "", "*", "+", "?", "*?"])
    | st.builds("{{{}}}".format, FEW)
    | st.builds("{{0,{}}}".format, st.sampled_from([1, 7, 100, 10_000])),
)


def _longer(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    piece = st.builds("{}{}".format, inner | st.builds("{}{})".format, GROUPS, inner), REPEATS)
    row = st.lists(piece, max_size=4).map("".join)
    return row | st.lists(row, min_size=2, max_size=3).map("|".join)


REGEXES = seldom(
    st.builds(lambda text, size: text * size, st.sampled_from(["|", "a?", "(a|b)", "("]), DEPTHS)
    | DEPTHS.map(lambda size: "(" * size + "a" + ")" * size),
    st.recursive(seldom(ODD_ATOMS, ATOMS), _longer, max_leaves=12),
)

# JSON schemas.


def _optional(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _schemas(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    many = st.lists(inner, max_size=3)
    names = TEXTS | st.sampled_from(["x", "y"])
    bounds = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), NUMBERS)
    sizes = dict.fromkeys(("minItems", "maxItems"), SIZES)
    strings = _optional(minLength=SIZES, maxLength=SIZES, format=FORMATS, pattern=REGEXES)
    objects = _optional(
        properties=st.dictionaries(names, inner, max_size=3),
        required=st.lists(names, max_size=3),
        additionalProperties=inner,
        patternProperties=st.dictionaries(REGEXES, inner, max_size=1),
        minProperties=SIZES,
        maxProperties=SIZES,
    )
    combined = _optional(**{"allOf": many, "anyOf": many, "oneOf": many, "not": inner, "if": inner, "then": inner})
    return st.one_of(
        st.builds(
            lambda kind, rest: {"type": kind, **rest}, st.sampled_from(["integer", "number"]), _optional(**bounds)
        ),
        strings.map(lambda rest: {"type": "string", **rest}),
        _optional(items=inner, prefixItems=many, **sizes).map(lambda rest: {"type": "array", **rest}),
        objects.map(lambda rest: {"type": "object", **rest}),
        _optional(const=STRANGE) | _optional(enum=st.lists(STRANGE, max_size=4)) | combined,
        st.builds(
            lambda schema, a, b: {"$ref": "#/$defs/a", "$defs": {"a": a, "b": b}, "not": schema}, inner, inner, inner
        ),
    )


LEAVES = st.sampled_from([True, False, {}, {"type": "null"}]) | st.sampled_from(REFERENCES).map(
    lambda name: {"$ref": name}
)
SCHEMAS = st.recursive(LEAVES, _schemas, max_leaves=8)
SENSIBLE = st.integers(0, 2**32).map(random_object_schema).flatmap(lambda schema: planted(schema, KEYWORDS))
DEEP = st.builds(
    lambda ends, size: (ends[0] * size + "true" + ends[1] * size).encode(),
    st.sampled_from([('{"items":', "}"), ('{"not":', "}"), ('{"anyOf":[', "]}"), ('{"enum":[[', "]]}")]),
    DEPTHS,
)
SCHEMA_TEXTS = seldom(DEEP, (SCHEMAS | SENSIBLE).flatmap(written))

# Lark grammars: rules and terminals that name each other, themselves, and what is not there.

ODD_ITEMS = _words("""missing MISSING <|im_end|> <[0-9]> <nonsense> "a".. 'a' "\\x00" start """)
DIRECTIVES = [
    *("%import common.INT", "%import common.WORD -> W", r"%ignore /[ \t]+/", "%llguidance {}", "%declare X"),
    *('%llguidance {"no_forcing": true}', '%llguidance {"nonsense": 1}', "%override start", "%extend start"),
]
MARKS = st.sampled_from(["", "", "", "", "[capture]", "[max_tokens=3]", "[lazy]", '[suffix="a"]', '[stop="b"]'])
LITERALS = _words('"a" "ab" "" "a"i "\\u00e9" "a".."z"')
PATTERNS = st.builds(
    "/{}/{}".format, REGEXES.map(lambda text: text.replace("/", "") or "a"), st.sampled_from(["", "i", "s"])
)
SIMPLE_LARK = PATTERNS.map("start: {}".format)


def _bodies(names: list[str]) -> SearchStrategy[str]:
    inner = st.sampled_from(names) | LITERALS | PATTERNS
    if not names[0].isupper():
        inner |= SCHEMAS.map(lambda schema: f"%json {json.dumps(schema)}") | SIMPLE_LARK.map("%lark {{\n{}\n}}".format)

    def longer(item: SearchStrategy[str]) -> SearchStrategy[str]:
        row = st.lists(st.builds("{}{}".format, item, REPEATS), min_size=1, max_size=3).map(" ".join)
        return st.lists(row, min_size=1, max_size=2).map(" | ".join).map("({})".format)

    return st.recursive(seldom(ODD_ITEMS, inner), longer, max_leaves=6)


@st.composite
def larks(draw: st.DrawFn) -> str:
    rules, terminals = ["start", "a", "b"][: draw(st.integers(1, 3))], ["T", "U"][: draw(st.integers(0, 2))]
    lines = [f"{name}{draw(MARKS)}: {draw(_bodies([*rules, *terminals]))}" for name in rules]
    lines += [f"{name}: {draw(_bodies(terminals))}" for name in terminals]
    return "\n".join(
        draw(st.permutations(lines + draw(st.just([]) | st.sampled_from(DIRECTIVES).map(lambda it: [it]))))
    )


LONG_LARKS = st.builds(
    lambda name, size: (
        f"start: {name}0\n" + "\n".join(f"{name}{n}: {name}{n + 1}" for n in range(size)) + f'\n{name}{size}: "a"'
    ),
    st.sampled_from("rT"),
    DEPTHS,
) | DEPTHS.map(lambda size: "start: " + "(" * size + '"a"' + ")" * size)


def _grammars(kind: GrammarKind, texts: SearchStrategy[str] | SearchStrategy[bytes]) -> SearchStrategy[Grammar]:
    data = texts.map(lambda text: text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
    damaged = seldom(st.builds(garbled, data, EDITS), data)
    # Texts come over gRPC or as JSON: what is no UTF-8 never gets to a compiler.
    return damaged.map(lambda each: Grammar(kind, each.decode("utf-8", "replace")))


GRAMMARS = (
    _grammars(GrammarKind.JSON_SCHEMA, SCHEMA_TEXTS)
    | _grammars(GrammarKind.REGEX, REGEXES)
    | _grammars(GrammarKind.LARK, seldom(LONG_LARKS, larks()))
)
