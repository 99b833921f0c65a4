"""Where a sequence stands in its grammar, however it came there."""

import random

from llguidance import LLMatcher, LLTokenizer

from pilotfish.structured.grammar import engine_grammar
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar, GrammarKind
from tests.support.small_vocabulary import EOS_TOKEN_ID, SmallVocabulary

SCHEMA = Grammar(
    GrammarKind.JSON_SCHEMA,
    '{"type":"object","properties":{"ab":{"type":"array","items":{"enum":[12,"no",true]},"maxItems":3}},'
    '"required":["ab"],"additionalProperties":false}',
)
TEXT = '{"ab": [12, "no", true]}'


def matcher_at(tokens: LLTokenizer, grammar: Grammar = SCHEMA, num_prompt_tokens: int = 5) -> GrammarMatcher:
    return GrammarMatcher(LLMatcher(tokens, engine_grammar(grammar)), num_prompt_tokens)


def allowed(mask: bytes | None) -> set[int] | None:
    return None if mask is None else {index for index in range(64) if mask[index // 8] >> index % 8 & 1}


def test_the_end_is_allowed_once_the_text_is_complete_and_nothing_else_is(
    vocabulary: SmallVocabulary, tokens: LLTokenizer
) -> None:
    matcher = matcher_at(tokens)
    matcher.append(vocabulary.encode(TEXT))
    assert allowed(matcher.allowed()) == {EOS_TOKEN_ID}


def test_a_forbidden_draft_frees_what_follows_and_harms_nothing(
    vocabulary: SmallVocabulary, tokens: LLTokenizer
) -> None:
    matcher = matcher_at(tokens)
    matcher.append(vocabulary.encode('{"ab": ['))
    wrong = vocabulary.encode("true, t]")
    assert matcher.allowed(wrong) is None
    assert matcher.fault is None
    assert allowed(matcher.allowed(wrong[:1])) == {vocabulary.texts.index(text) for text in ("]", ", ", ",", "]}")}


def test_masks_do_not_depend_on_the_way(vocabulary: SmallVocabulary, tokens: LLTokenizer) -> None:
    """Any walk of appends, truncations, drafts and branches ends where a fresh matcher gets directly."""
    rng = random.Random(5)
    walker, output = matcher_at(tokens, num_prompt_tokens=3), []
    paths = [vocabulary.encode(text) for text in ('{"ab": [12, 12', '{"ab": ["no"]}', '{"ab": [true', "12", TEXT)]
    for _ in range(300):
        path = rng.choice(paths)
        match rng.choice(("append", "truncate", "draft", "finish")):
            case "append":
                step = path[len(output) : len(output) + rng.randint(1, 3)] if path[: len(output)] == output else []
                output = output + step
                walker.append(step)
            case "truncate":
                output = output[: rng.randint(0, len(output))]
                walker.truncate(3 + len(output))
            case "finish":
                drafts = [*path[len(output) :], EOS_TOKEN_ID, EOS_TOKEN_ID]
                assert walker.allowed(drafts) == reached(tokens, output, drafts)
            case _:
                drafts = path[len(output) : len(output) + rng.randint(0, 6)]
                assert walker.allowed(drafts) == reached(tokens, output, drafts)


def reached(tokens: LLTokenizer, output: list[int], drafts: list[int]) -> bytes | None:
    fresh = matcher_at(tokens, num_prompt_tokens=0)
    fresh.append([*output, *drafts])
    return fresh.allowed()
