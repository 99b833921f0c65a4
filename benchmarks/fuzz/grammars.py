"""Schemas, expressions and grammars through guard and compiler of a target, in a process that may die of one."""

import contextlib
import functools
import json
import multiprocessing
import random
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import shared.checkout  # noqa: F401  # finds tests.support
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz.frames import EDITS, NUMBERS, STRANGE, TEXTS, garbled, planted, written
from fuzz.surface import HANG_S
from pilotfish.config import Config
from pilotfish.errors import InvalidRequestError
from pilotfish.models.store.pull import pull_tokenizer
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.grammar import load_vocabulary
from pilotfish.structured.guard import GrammarGuard
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema

SIZES = st.sampled_from([0, 1, 2, 7, 100, 10_000, 1_000_000, 2**31, 2**32, 2**63, 2**64 + 1, -1])
DEPTHS = st.sampled_from([100, 990, 5_000])


def _words(text: str) -> SearchStrategy[str]:
    """One of those between the spaces; what stands at the end is empty."""
    return st.sampled_from(text.split(" "))


def seldom(odd: SearchStrategy[Any], usual: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Something stands where it must not."""
    return st.integers(0, 11).flatmap(lambda choice: odd if choice == 7 else usual)


ATOMS = seldom(
    _words(r"^ $ \b \B \1 \k<n> \x00 \u{10ffff} [] [z-a] [\d-z] ( ) \ & ~ "),
    _words(r"a b . [a-z] [^a] \d \w \s \p{L} \P{Lu} \pN [[:alpha:]] é 😀"),
)
GROUPS = seldom(_words("(?= (?! (?<= (?<! (?> (?u-i: (?#"), _words("( (?: (?i: (?P<n> (?s:"))
REPEATS = seldom(
    _words("++ {,3} **") | st.builds("{{{},{}}}".format, SIZES, SIZES), _words("* + ? *? {0} {3} {0,7} {0,10000}    ")
)


def _longer(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    piece = st.builds("{}{}".format, inner | st.builds("{}{})".format, GROUPS, inner), REPEATS)
    row = st.lists(piece, max_size=4).map("".join)
    return row | st.lists(row, min_size=2, max_size=3).map("|".join)


REGEXES = seldom(
    st.builds(lambda text, size: text * size, st.sampled_from(["|", "a?", "(a|b)", "("]), DEPTHS)
    | DEPTHS.map(lambda size: "(" * size + "a" + ")" * size),
    st.recursive(ATOMS, _longer, max_leaves=12),
)

TYPES = _words("object array string integer number boolean null nonsense")
NAMES = TEXTS | st.sampled_from(["x", "y"])
REFERENCES = _words("# #/ #/$defs/a #/$defs/b #/properties/x #/$defs/missing http://a/b #a ")
FORMATS = _words("date time date-time email uuid ipv4 ipv6 uri hostname duration regex nonsense")


def _schemas(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Up to four keywords, each with a value of its kind, on top of a type that may not know them."""
    objects = st.dictionaries(NAMES, inner, max_size=3)
    kinds: dict[str, SearchStrategy[Any]] = {
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), NUMBERS),
        **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), SIZES),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), st.lists(inner, max_size=3)),
        **dict.fromkeys(("not", "if", "then", "items", "additionalProperties"), inner),
        **{"properties": objects, "patternProperties": st.dictionaries(REGEXES, inner, max_size=1)},
        **{"required": st.lists(NAMES, max_size=3), "format": FORMATS, "pattern": REGEXES},
        **{"const": STRANGE, "enum": st.lists(STRANGE, max_size=4), "$ref": REFERENCES, "$defs": objects},
    }
    chosen = st.lists(st.sampled_from(sorted(kinds)), max_size=4, unique=True)
    keywords = chosen.flatmap(lambda names: st.fixed_dictionaries({name: kinds[name] for name in names}))
    return keywords | st.builds(lambda kind, rest: {"type": kind, **rest}, TYPES, keywords)


SCHEMAS = st.recursive(st.booleans() | st.just({}) | TYPES.map(lambda kind: {"type": kind}), _schemas, max_leaves=8)
SENSIBLE = st.integers(0, 2**32).map(random_object_schema).flatmap(lambda it: planted(it, ["minimum", "$ref", "not"]))
DEEP = st.builds(
    lambda ends, size: (ends[0] * size + "true" + ends[1] * size).encode(),
    st.sampled_from([('{"items":', "}"), ('{"not":', "}"), ('{"anyOf":[', "]}"), ('{"enum":[[', "]]}")]),
    DEPTHS,
)

MARKS = st.sampled_from(["", "", "", "[capture]", "[max_tokens=3]", "[lazy]", '[suffix="a"]', '[stop="b"]'])
DIRECTIVES = st.sampled_from(
    [
        *("%import common.INT", "%import common.WORD -> W", r"%ignore /[ \t]+/", "%llguidance {}", "%declare X"),
        *('%llguidance {"no_forcing": true}', '%llguidance {"nonsense": 1}', "%override start", "%extend start"),
    ]
)
PATTERNS = REGEXES.map(lambda text: f"/{text.replace('/', '') or 'a'}/")
ITEMS = seldom(
    _words("""missing MISSING <|im_end|> <[0-9]> <nonsense> "a".. 'a' "\\x00" """),
    _words('start a b T U "a" "ab" "" "a"i "\\u00e9" "a".."z"')
    | PATTERNS
    | SCHEMAS.map(lambda schema: f"%json {json.dumps(schema)}")
    | PATTERNS.map("%lark {{\nstart: {}\n}}".format),
)


def _alternatives(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    row = st.lists(st.builds("{}{}".format, inner, REPEATS), min_size=1, max_size=3).map(" ".join)
    return st.lists(row, min_size=1, max_size=2).map(lambda rows: f"({' | '.join(rows)})")


BODIES = st.recursive(ITEMS, _alternatives, max_leaves=6)
RULES = st.dictionaries(_words("start a b T U"), st.tuples(MARKS, BODIES), min_size=1).map(
    lambda rules: [f"{name}{mark}: {body}" for name, (mark, body) in rules.items()]
)
LARKS = st.builds(
    lambda rules, more: "\n".join([*rules, *more]), RULES, seldom(st.lists(DIRECTIVES, max_size=2), st.just([]))
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
    _grammars(GrammarKind.JSON_SCHEMA, seldom(DEEP, (SCHEMAS | SENSIBLE).flatmap(written)))
    | _grammars(GrammarKind.REGEX, REGEXES)
    | _grammars(GrammarKind.LARK, seldom(LONG_LARKS, LARKS))
)


NUM_TOKENS = 12
"""Tokens of an answer."""
MAX_END_CHARS = 80
"""The beginning of what became of a grammar that is kept: refusals go on to quote it."""


class GrammarsSurface:
    """An input is a grammar."""

    name = "grammars"
    inputs = GRAMMARS

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        config = Config()
        self._folder = str(pull_tokenizer(config.target.model, config.cache_dir))
        # A process that dies breaks the pool: that is the crash.
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self._pool.submit(end_of, self._folder, Grammar(GrammarKind.JSON_OBJECT)).result()
        yield
        for process in multiprocessing.active_children():
            process.kill()  # it may compute for ever
        self._pool.shutdown()

    async def run(self, data: Grammar) -> set[str]:
        end = self._pool.submit(end_of, self._folder, data).result(HANG_S)
        return {f"{data.kind.name} {end}"[:MAX_END_CHARS]}


@functools.cache
def compiler_of(folder: str) -> GrammarCompiler:
    """As a target has it, one for each process."""
    tokenizer = Tokenizer.load(Path(folder))
    arguments = Path(folder), tokenizer.vocab_size, sorted(tokenizer.eos_token_ids)
    return GrammarCompiler(lambda: load_vocabulary(*arguments), GrammarGuard(*arguments))


def end_of(folder: str, grammar: Grammar) -> str:
    """Refused, and why; or compiled, and how far some allowed tokens lead, each after drafts that are rejected."""
    try:
        compiled = compiler_of(folder).compile(grammar).result()
    except InvalidRequestError as error:
        return f"refused: {error}"
    rng = random.Random(1)
    matcher = GrammarMatcher(compiled.matcher.deep_copy(), num_prompt_tokens=1, vocabulary=compiled.vocabulary)
    for position in range(NUM_TOKENS):
        mask = matcher.allowed()
        matcher.forced(max_bytes=256, max_s=0.002)
        if matcher.fault:
            return f"fault: {matcher.fault}"
        if mask is None or not any(mask):
            return f"ends {'at once' if position == 0 else 'later'}"
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little"))
        token_ids = [int(rng.choice(allowed)) for _ in range(2)]
        matcher.allowed(token_ids[:1])
        matcher.allowed(token_ids)
        matcher.append(token_ids[:1])
    return "goes on"
