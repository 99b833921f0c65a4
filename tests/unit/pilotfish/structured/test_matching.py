"""Where a sequence stands in its grammar, however it came there."""

import json
import multiprocessing
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from pilotfish.structured.grammar import compile_grammar, engine_grammar, load_vocabulary
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
    return GrammarMatcher(LLMatcher(tokens, engine_grammar(grammar)), num_prompt_tokens, vocabulary=tokens)


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


def long_object(**properties: Any) -> dict[str, Any]:
    properties = {"k": {"const": "x" * 2000}, **properties}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def behind_a_choice(schemas: dict[str, Any]) -> Grammar:
    """So that the first mask shows nothing of it."""
    schema = {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/x0"}], "$defs": schemas}
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


ENDLESS = behind_a_choice({"x0": long_object(a={"$ref": "#/$defs/x0"})})
DOUBLING = behind_a_choice(
    {
        "x24": {"type": "null"},
        **{f"x{n}": long_object(**{key: {"$ref": f"#/$defs/x{n + 1}"} for key in "ab"}) for n in range(24)},
    }
)
ASKING_FOR_IT = Grammar(
    GrammarKind.LARK, '%llguidance {"no_forcing": false}\nstart: "t" | "{" x\nx: "' + "x" * 2000 + '" x "b"'
)


@pytest.mark.parametrize("grammar", [ENDLESS, DOUBLING, ASKING_FOR_IT])
def test_no_step_writes_out_what_has_no_alternative(model_folder: Path, grammar: Grammar) -> None:
    """In a process of its own, which may die of it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        fault, worst_s = pool.submit(follow, model_folder, grammar).result(timeout=60)
    assert fault is None
    assert worst_s < 0.3


def follow(folder: Path, grammar: Grammar) -> tuple[str | None, float]:
    """Why the matcher gave up, and the CPU time of the longest step."""
    vocabulary = load_vocabulary(folder, 98, {0})
    size_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes + 200 * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    matcher = GrammarMatcher(compile_grammar(vocabulary, grammar), 0, vocabulary=vocabulary)
    rng, worst_s = random.Random(1), 0.0
    for step in range(100):
        before = time.thread_time()
        mask = matcher.allowed()
        assert len(matcher.forced(max_bytes=256, max_s=0.002).text) < 300
        worst_s = max(worst_s, time.thread_time() - before)
        if mask is None:
            break
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little"))
        matcher.append([int(allowed[-1] if step == 0 else rng.choice(allowed[allowed > 0]))])  # {, not a boolean
    return matcher.fault, worst_s
