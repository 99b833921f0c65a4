"""Forced text as the model would write it."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from pilotfish.drafters.grammar.draft import GrammarDrafter
from pilotfish.structured.grammar import engine_grammar
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar, GrammarKind
from tests.support.small_vocabulary import EOS_TOKEN_ID, SmallVocabulary

VOCABULARY = SmallVocabulary()
TOKENS = VOCABULARY.tokenizer()
PROMPT = [VOCABULARY.encode(" ")[0]]


def at(grammar: Grammar, text: str = "", tokens: LLTokenizer = TOKENS) -> tuple[GrammarMatcher, list[int]]:
    """A matcher behind the text, and the tokens of prompt and text."""
    written = tokens.tokenize_bytes(text.encode())
    return GrammarMatcher(LLMatcher(tokens, engine_grammar(grammar)), 0, written, vocabulary=tokens), [
        *PROMPT,
        *written,
    ]


def of_schema(**properties: Any) -> Grammar:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


def drafted(grammar: Grammar, text: str = "", max_tokens: int = 32) -> str:
    return VOCABULARY.decode(GrammarDrafter(max_s=60).draft(*at(grammar, text), max_tokens, is_greedy=True).token_ids)


def test_forced_text_is_drafted_in_the_tokenizers_tokens() -> None:
    span = GrammarDrafter(max_s=60).draft(*at(of_schema(ab={"enum": ["no", "yes"]}), '{"ab": "n'), 32, is_greedy=True)
    assert [VOCABULARY.texts[token_id] for token_id in span.token_ids] == ["o", '"}', ""]
    assert span.token_ids[-1] == EOS_TOKEN_ID


def test_a_draft_is_no_longer_than_is_asked_for() -> None:
    assert drafted(of_schema(ab={"const": "no"}), max_tokens=2) == '{"ab'


def test_the_last_token_is_left_open_where_most_that_may_follow_makes_it_a_longer_one() -> None:
    assert drafted(Grammar(GrammarKind.REGEX, 'a"(}x|}y)'), "a") == '"}'
    assert drafted(Grammar(GrammarKind.REGEX, 'a"(}|,)'), "a") == ""
    assert drafted(Grammar(GrammarKind.REGEX, 'a"(}|,|x|y|z)'), "a") == '"'


def test_what_the_model_wrote_in_a_tokens_place_is_drafted_the_next_time() -> None:
    grammar, drafter = of_schema(ab={"enum": ["no", "yes"]}), GrammarDrafter(max_s=60)
    canonical = drafter.draft(*at(grammar), 32, is_greedy=True)
    assert canonical.token_ids[0] == VOCABULARY.encode('{"')[0]
    brace, quote = VOCABULARY.encode("{")[0], VOCABULARY.encode('"')[0]
    for _ in range(40):
        drafter.learn(drafter.draft(*at(grammar), 32, is_greedy=True), [brace])
    span = drafter.draft(*at(grammar), 32, is_greedy=True)
    assert span.token_ids[:2] == (brace, quote)
    assert VOCABULARY.decode(span.token_ids) == VOCABULARY.decode(canonical.token_ids)


def test_where_the_model_is_not_to_be_foreseen_the_draft_ends() -> None:
    grammar, drafter = of_schema(ab={"const": "no"}), GrammarDrafter(max_s=60)
    for token_id in VOCABULARY.encode("{") + VOCABULARY.encode('{"'):
        for _ in range(10):
            drafter.learn(drafter.draft(*at(grammar), 32, is_greedy=True), [token_id])
    for _ in range(4):
        for token_id in VOCABULARY.encode("{") + VOCABULARY.encode('{"'):
            drafter.learn(drafter.draft(*at(grammar), 32, is_greedy=True), [token_id])
    assert drafter.draft(*at(grammar), 32, is_greedy=True).token_ids == ()


def test_the_beginning_of_a_character_is_left_to_the_model() -> None:
    tokens = LLTokenizer("byte")
    span = GrammarDrafter(max_s=60).draft(*at(Grammar(GrammarKind.REGEX, "ab(😀|😁)"), "", tokens), 32, is_greedy=True)
    assert tokens.decode_bytes(list(span.token_ids)) == b"ab"


def test_a_character_that_the_answer_is_within_is_drafted_to_its_end() -> None:
    tokens = LLTokenizer("byte")
    grammar = Grammar(GrammarKind.REGEX, "a(😀b|🤖c)")
    written = list("a😀".encode()[:4])
    matcher = GrammarMatcher(LLMatcher(tokens, engine_grammar(grammar)), 0, written, vocabulary=tokens)
    span = GrammarDrafter(max_s=60).draft(matcher, [*PROMPT, *written], 32, is_greedy=True)
    assert tokens.decode_bytes(list(span.token_ids[:2])) == "😀b".encode()[3:]


@pytest.mark.parametrize("text", ["", "{", '{"ab": "n', '{"ab": "no"}'])
def test_whatever_is_drafted_the_grammar_allows(text: str) -> None:
    grammar = of_schema(ab={"enum": ["no", "nonno", "yes"]}, c={"type": "array", "items": {"const": 12}, "maxItems": 2})
    if text.endswith("}"):
        grammar = of_schema(ab={"enum": ["no", "nonno", "yes"]})
    matcher, token_ids = at(grammar, text)
    span = GrammarDrafter(max_s=60).draft(matcher, token_ids, 32, is_greedy=True)
    for place, token_id in enumerate(span.token_ids):
        mask = matcher.allowed(span.token_ids[:place])
        assert mask is not None
        assert mask[token_id // 8] >> token_id % 8 & 1
