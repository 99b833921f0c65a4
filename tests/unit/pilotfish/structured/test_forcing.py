"""What a grammar leaves no choice about, wherever an answer stands."""

import itertools
import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from pilotfish.structured.forcing import ForcedText, forced_text
from pilotfish.structured.grammar import engine_grammar
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar, GrammarKind
from tests.support.small_vocabulary import EOS_TOKEN_ID, SmallVocabulary

BYTES = LLTokenizer("byte")


def after(tokens: LLTokenizer, grammar: Grammar, text: str | bytes, **bounds: Any) -> ForcedText:
    """What is forced once the text has come."""
    matcher = LLMatcher(tokens, engine_grammar(grammar))
    written = tokens.tokenize_bytes(text.encode() if isinstance(text, str) else text)
    assert matcher.try_consume_tokens(written) == len(written)
    return forced_text(matcher, tokens, **{"max_bytes": 200, "max_s": 60.0, **bounds})


def of_schema(**properties: Any) -> Grammar:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


UNIT = of_schema(a={"enum": ["celsius", "fahrenheit"]}, b={"type": "integer"})


@pytest.mark.parametrize(
    ("text", "forced"),
    [
        ("", '{"a": "'),
        ('{"a": "', ""),
        ('{"a": "c', 'elsius", "b": '),
        ('{"a": "celsius", "b": 1', ""),
    ],
)
def test_names_quotes_and_the_rest_of_a_value_are_forced_and_choices_are_not(
    tokens: LLTokenizer, text: str, forced: str
) -> None:
    for vocabulary in (tokens, BYTES):
        assert after(vocabulary, UNIT, text).text == forced.encode()


def test_what_may_follow_is_known_where_it_is_little(tokens: LLTokenizer) -> None:
    assert after(tokens, UNIT, "").next_bytes == frozenset(b"cf")


def test_the_end_is_forced_where_nothing_may_follow(tokens: LLTokenizer) -> None:
    yes = of_schema(a={"const": True})
    assert after(tokens, yes, '{"a": ') == ForcedText(b"true}", EOS_TOKEN_ID)
    assert after(tokens, yes, '{"a": true}') == ForcedText(b"", EOS_TOKEN_ID)


def test_no_end_is_forced_where_the_answer_may_go_on(tokens: LLTokenizer) -> None:
    assert after(tokens, Grammar(GrammarKind.REGEX, "ab?"), "a").end_token_id is None


def test_a_character_that_is_forced_in_part_is_found_as_far_as_it_is() -> None:
    faces = Grammar(GrammarKind.REGEX, "a(😀|😁)")
    assert after(BYTES, faces, "").text == "a😀".encode()[:4]


def test_endless_text_is_found_within_bounds(tokens: LLTokenizer) -> None:
    endless = Grammar(GrammarKind.LARK, 'start: "t" | "a" x\nx: "' + "x" * 500 + '" x "b"')
    assert 100 <= len(after(tokens, endless, "a", max_bytes=100).text) < 110
    ticks = itertools.count()
    assert len(after(tokens, endless, "a", max_bytes=10**6, max_s=20, clock=lambda: float(next(ticks))).text) < 100


def test_what_is_left_of_forced_text_is_what_is_forced(vocabulary: SmallVocabulary, tokens: LLTokenizer) -> None:
    """However an answer grows and is taken back, it is what a matcher that comes there directly finds."""
    answer = vocabulary.encode('{"a": "celsius", "b": 1}')
    walker = GrammarMatcher(LLMatcher(tokens, engine_grammar(UNIT)), 0, vocabulary=tokens)
    lengths = [0, 1, 3, 4, 5, 6, 3, 7, 2, 9, len(answer), 4]
    for before, length in itertools.pairwise([0, *lengths]):
        walker.truncate(length)
        walker.append(answer[before:length])
        fresh = GrammarMatcher(LLMatcher(tokens, engine_grammar(UNIT)), 0, answer[:length], vocabulary=tokens)
        assert walker.forced(max_bytes=200, max_s=60) == fresh.forced(max_bytes=200, max_s=60)
        assert walker.allowed() == fresh.allowed()


def test_finding_it_never_ends_an_answer() -> None:
    """What the library cannot follow lies far ahead: the answer goes on until it is there."""
    deep = Grammar(
        GrammarKind.LARK,
        'start: "a" "b" y\ny: '
        + " ".join(f"x{n}?" for n in range(200))
        + "\n"
        + "".join(f'x{n}: "c" y\n' for n in range(200)),
    )
    matcher = GrammarMatcher(LLMatcher(BYTES, engine_grammar(deep), log_level=0), 0, vocabulary=BYTES)
    matcher.forced(max_bytes=200, max_s=60)
    assert matcher.fault is None
    assert matcher.allowed() is not None
