"""Good grammars compile, and errors say what is wrong."""

import json
from typing import Any

import pytest
from llguidance import LLTokenizer

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import MAX_GRAMMAR_CHARS, compile_grammar, schema_grammar
from pilotfish.types import Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema


@pytest.fixture(scope="module")
def tokens() -> LLTokenizer:
    return LLTokenizer("byte")


def schema(value: Any) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(value))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(GrammarKind.JSON_OBJECT),
        Grammar(GrammarKind.REGEX, "[a-z]{2,4}"),
        Grammar(GrammarKind.REGEX, "a\\\\"),
        Grammar(GrammarKind.LARK, 'start: "<a>" obj "</a>"\nobj: %json {"type": "object"}'),
        schema(True),
        schema({}),
        *(schema(random_object_schema(seed)) for seed in range(20)),
    ],
)
def test_good_grammars_compile(tokens: LLTokenizer, grammar: Grammar) -> None:
    assert not compile_grammar(tokens, grammar).is_error()


@pytest.mark.parametrize(
    ("grammar", "told"),
    [
        (Grammar(GrammarKind.JSON_SCHEMA, "{"), "is not JSON"),
        (schema([1]), "object or a boolean, not list"),
        (schema({"type": "foo"}), "foo"),
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"$ref": "#/definitions/nope"}), "nope"),
        (schema({"type": "foo"}), "^the JSON schema cannot be used: Invalid type: foo$"),  # nothing of ours
        (schema({"type": "string", "pattern": "(?=x)"}), "look-ahead and look-behind, is not supported$"),
        (schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "oneOf .* are not supported. Use anyOf"),
        (Grammar(GrammarKind.LARK, 'start: a\na: %json {"type": "foo"}'), "^the JSON schema cannot .* type: foo$"),
        (schema({"type": "integer", "minimum": 5, "maximum": 1}), "minimum"),
        (Grammar(GrammarKind.REGEX, "a(b"), "regular expression"),
        (Grammar(GrammarKind.LARK, "start: nothing"), "nothing"),
        (Grammar(GrammarKind.REGEX, "a" * (MAX_GRAMMAR_CHARS + 1)), "at most"),
        (Grammar(GrammarKind.REGEX, "a\\"), "backslash"),
        (Grammar(GrammarKind.LARK, "start: start"), "no text can follow it$"),
        (Grammar(GrammarKind.REGEX, r"[^\s\S]"), "regular expression cannot be used: no text can follow it$"),
        (Grammar(GrammarKind.REGEX, "("), r"unclosed group 1 start: /\(/$"),  # nothing of ours
        (Grammar(GrammarKind.JSON_SCHEMA, "false"), "it is false, which nothing follows"),
        (Grammar(GrammarKind.REGEX, "a\ud83d"), "surrogate pair"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"const": "\\ud83d"}'), "cannot be used"),
        (schema({"const": 2**53 + 1}), "const. holds a number"),
        (schema({"const": float(2**53)}), "const. holds a number"),  # it may have been 2^53 + 1 before it was a float
        (schema({"type": "integer", "minimum": -(10**29), "maximum": -(10**29)}), "imum. holds a number"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"maximum": NaN}'), "is not JSON: it holds NaN"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"maximum": ' + "9" * 5000 + "}"), "is not JSON"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"const": 9007199254740992.5}'), "const. holds a number"),
        *(
            (Grammar(GrammarKind.JSON_SCHEMA, f'{{"const": {digits}}}'), "const. holds a number")
            for digits in ("1e99999999999999999999", "-1e-99999999999999999999", "0e99999999999999999999")
        ),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"\\ud800": 1e300}'), "ud800. holds a number"),
        (Grammar(GrammarKind.LARK, f'start: "a" %json {{"const": {2**64 + 1}}}'), "const. holds a number"),
        (Grammar(GrammarKind.LARK, "start: %json " + '{"not": ' * 990 + "{}" + "}" * 990), "levels deep"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"not": ' * 990 + "{}" + "}" * 990), "levels deep"),
    ],
)
def test_bad_grammars_are_refused_by_what_is_wrong(tokens: LLTokenizer, grammar: Grammar, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        compile_grammar(tokens, grammar)
    assert caught.value.param == "grammar"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def follows(tokens: LLTokenizer, grammar: Grammar, text: str) -> bool:
    """Whether the whole text does."""
    matcher, token_ids = compile_grammar(tokens, grammar), tokens.tokenize_str(text)
    return bool(matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting())


@pytest.mark.parametrize("bound", [2**53, -(2**53), 0, 127])
def test_numbers_within_bounds_are_exact(tokens: LLTokenizer, bound: int) -> None:
    for good in ({"const": bound}, {"enum": [bound]}, {"type": "integer", "minimum": bound, "maximum": bound}):
        for text, is_followed in ((str(bound), True), (str(bound + 1), False), (str(bound - 1), False)):
            assert follows(tokens, schema(good), text) == is_followed, (good, text)


@pytest.mark.parametrize("digit", ["\N{ARABIC-INDIC DIGIT THREE}", "\N{SEGMENTED DIGIT EIGHT}"])
@pytest.mark.parametrize("pattern", [r"\d{2}", r"[\d.]{2}", r"(?:\d\d)"])
def test_digits_are_those_from_0_to_9(tokens: LLTokenizer, pattern: str, digit: str) -> None:
    grammar = Grammar(GrammarKind.REGEX, pattern)
    assert follows(tokens, grammar, "90")
    assert not follows(tokens, grammar, f"1{digit}")
    assert follows(
        tokens, Grammar(GrammarKind.REGEX, r"\w{2}"), "\N{LATIN SMALL LETTER SHARP S}\N{CYRILLIC SMALL LETTER ZHE}"
    )


@pytest.mark.parametrize("name", ["password", "path", "binary", "ipv4network", "int32", "my-own", ""])
def test_a_format_that_json_schema_does_not_define_binds_nothing(tokens: LLTokenizer, name: str) -> None:
    secret = {"type": "string", "format": name, "maxLength": 3}
    nested = {"type": "object", "properties": {"format": {"anyOf": [secret, {"type": "null"}]}}, "required": ["format"]}
    assert follows(tokens, schema(secret), '"a b"')
    assert not follows(tokens, schema(secret), '"abcd"')
    assert follows(tokens, schema(nested), '{"format": "a b"}')
    assert follows(tokens, schema({"const": {"format": name}}), json.dumps({"format": name}))
    assert not follows(tokens, schema({"const": {"format": name}}), "{}")


def test_words_for_readers_take_no_room_and_names_like_theirs_stay(tokens: LLTokenizer) -> None:
    words = {"title": "n", "description": "fish " * MAX_GRAMMAR_CHARS, "$comment": "fish"}
    named = {"description": {"const": 1}, "title": {"$ref": "#/components/title"}}
    described = {**words, "type": "object", "properties": named, "required": [*named], "additionalProperties": False}
    grammar = schema_grammar({**described, "components": {"title": {"enum": [{"title": "x"}]}}}, "p")
    assert follows(tokens, grammar, '{"description": 1, "title": {"title": "x"}}')
    assert not follows(tokens, grammar, '{"description": 1, "title": {}}')
    assert not follows(tokens, grammar, "{}")


def test_a_format_of_json_schemas_binds_or_is_refused(tokens: LLTokenizer) -> None:
    assert not follows(tokens, schema({"type": "string", "format": "date"}), '"a b"')
    with pytest.raises(InvalidRequestError, match="Unknown format: idn-email"):
        compile_grammar(tokens, schema({"type": "string", "format": "idn-email"}))


def test_annotations_bind_no_answer_and_may_hold_any_number(tokens: LLTokenizer) -> None:
    large = 2**63 - 1
    annotated = {"type": "integer", "default": large, "examples": [large]}
    compile_grammar(tokens, schema({"properties": {"n": annotated}, "default": {"n": large}}))
    for digits in ("3.14159265358979323846", "1e400", "-1e99999999999999999999"):
        compile_grammar(tokens, Grammar(GrammarKind.JSON_SCHEMA, f'{{"type": "number", "default": {digits}}}'))
    with pytest.raises(InvalidRequestError, match="kept exactly"):  # here it is the name of a property
        compile_grammar(tokens, schema({"properties": {"default": {"const": large}}}))


def test_a_schema_cannot_set_the_librarys_options(tokens: LLTokenizer) -> None:
    compile_grammar(tokens, schema({"type": "object", "x-guidance": {"lenient": True, "nonsense": 1}}))
    with pytest.raises(InvalidRequestError, match="uniqueItems"):
        compile_grammar(tokens, schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}))
