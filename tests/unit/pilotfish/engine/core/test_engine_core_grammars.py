"""Structured output of the engine: always valid, and the same whatever was drafted."""

import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.messages import (
    Decode,
    Event,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.grammar import engine_grammar
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import (
    AcceptanceMode,
    FinishReason,
    Grammar,
    GrammarKind,
    SamplingParams,
    SequenceErrorCode,
    TreeRequest,
)
from tests.support.engine_events import MakeCore, errors_of, settle, text_of
from tests.support.json_schemas import random_object_schema
from tests.support.small_vocabulary import EOS_TOKEN_ID, SmallVocabulary

PROMPT = (1, 5, 9, 2, 33, 7)
VOCABULARY = SmallVocabulary()
TOKENS = VOCABULARY.tokenizer()
SCHEMA = {
    "type": "object",
    "properties": {
        "ab": {"type": "string", "maxLength": 6},
        "c": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4},
    },
    "required": ["ab", "c"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(lambda: TOKENS)
    yield compiler
    compiler.close()


@pytest.fixture
def make_core(make_core: MakeCore, compiler: GrammarCompiler) -> MakeCore:
    return lambda grammars=None: make_core(grammars=grammars or Grammars(compiler), context=512, kv_cache_tokens=4096)


def sampling(schema: Any = SCHEMA, **changes: Any) -> SamplingParams:
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    settings = {"max_tokens": 400, "stop_token_ids": (EOS_TOKEN_ID,), "grammar": grammar}
    return SamplingParams(**{**settings, **changes})


def ready(core: EngineCore, compiler: GrammarCompiler, command: OpenSequence) -> None:
    """Open, and wait for the grammar."""
    core.submit(command)
    assert command.sampling.grammar is not None
    compiler.compile(command.sampling.grammar).exception(timeout=30)


def verdict_of(events: Sequence[Event]) -> Verdict:
    assert not any(isinstance(event, SequenceError) for event in events), events
    (verdict,) = (event for event in events if isinstance(event, Verdict))
    return verdict


def plain(core: EngineCore, compiler: GrammarCompiler, params: SamplingParams) -> list[int]:
    ready(core, compiler, OpenSequence(1, PROMPT, params))
    core.submit(Decode(1, len(PROMPT), 400))
    return text_of(settle(core))


def is_valid(token_ids: Sequence[int], schema: Any) -> bool:
    assert token_ids[-1] == EOS_TOKEN_ID
    return Draft202012Validator(schema).is_valid(json.loads(VOCABULARY.decode(token_ids)))


def test_a_grammar_and_allowed_tokens_hold_together(make_core: MakeCore, compiler: GrammarCompiler) -> None:
    digits = Grammar(GrammarKind.REGEX, "[0-9]{6}")
    allowed = (*(VOCABULARY.encode(digit)[0] for digit in "123"), EOS_TOKEN_ID)
    output = plain(make_core(), compiler, sampling(grammar=digits, allowed_token_ids=allowed))
    assert len(output) == 7
    assert {*output} <= {*allowed}


def test_a_grammar_that_goes_on_with_no_allowed_token_ends_in_an_error(
    make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    core, one = make_core(), VOCABULARY.encode("1")[0]
    params = sampling(grammar=Grammar(GrammarKind.REGEX, "1{3}2"), allowed_token_ids=(one, EOS_TOKEN_ID))
    ready(core, compiler, OpenSequence(1, PROMPT, params))
    core.submit(Decode(1, len(PROMPT), 10))
    events = settle(core)
    assert text_of(events) == [one] * 3
    (error,) = (event for event in events if isinstance(event, SequenceError))
    assert (error.code, error.param) == (SequenceErrorCode.INVALID, "allowed_token_ids")
    assert core.load().num_kv_blocks_used == 0


MODES = [
    {"temperature": 0},
    {"seed": 11},
    {"seed": 12, "top_p": 0.8, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_the_text_does_not_depend_on_the_drafts(
    make_core: MakeCore, compiler: GrammarCompiler, mode: dict[str, Any], shape: str
) -> None:
    """Drafts that are right for a while, that break the grammar and that pass the end, as chains and as trees."""
    params = sampling(**mode)
    expected = plain(make_core(), compiler, params)
    assert is_valid(expected, SCHEMA)
    rng = random.Random(3)
    core, output = make_core(), []
    ready(core, compiler, OpenSequence(1, PROMPT, params))
    core.submit(Decode(1, len(PROMPT), 1))
    output.extend(verdict_of(settle(core)).token_ids)
    num_accepted = 0
    while output[-1] != EOS_TOKEN_ID:
        paths = [_drafts(rng, expected[len(output) :]) for _ in range(3 if shape == "tree" else 1)]
        token_ids, tree = tree_of_paths(paths, max_nodes=8)
        parents = () if tree.is_chain else tree.parents
        core.submit(Verify(1, len(PROMPT) + len(output), tuple(token_ids), parents=parents))
        verdict = verdict_of(settle(core))
        num_accepted += verdict.num_accepted_tokens
        output.extend(verdict.token_ids)
        assert output == expected[: len(output)]
    assert num_accepted > len(expected) // 4


def tree_of_paths(paths: Sequence[Sequence[int]], max_nodes: int) -> tuple[list[int], DraftTree]:
    """Token ids and shape of the tree of the paths, which share common beginnings; the last nodes are cut off."""
    texts = dict.fromkeys(tuple(path[: end + 1]) for path in paths for end in range(len(path)))
    nodes = list(texts)[:max_nodes]
    parents = tuple(nodes.index(text[:-1]) if len(text) > 1 else -1 for text in nodes)
    return [text[-1] for text in nodes], DraftTree(parents)


def _drafts(rng: random.Random, right: Sequence[int]) -> list[int]:
    num_right = rng.randint(0, 4)
    return [*right[:num_right], *(rng.randrange(64) for _ in range(rng.randint(1, 3)))]


@pytest.mark.parametrize("seed", range(3))
def test_random_schemas_are_always_followed(make_core: MakeCore, compiler: GrammarCompiler, seed: int) -> None:
    schema = random_object_schema(seed, max_depth=2)
    greedy = plain(make_core(), compiler, sampling(schema, temperature=0))
    sampled = plain(make_core(), compiler, sampling(schema, seed=seed))
    rejected = plain(make_core(), compiler, sampling(schema, seed=seed, acceptance=AcceptanceMode.REJECTION))
    assert all(is_valid(token_ids, schema) for token_ids in (greedy, sampled, rejected))


@pytest.mark.parametrize("tree", [None, TreeRequest(6, 2)])
@pytest.mark.parametrize("mode", [*MODES, {"seed": 13, "acceptance": AcceptanceMode.REJECTION}])
def test_a_drafter_keeps_to_the_grammar(
    make_core: MakeCore, compiler: GrammarCompiler, mode: dict[str, Any], tree: TreeRequest | None
) -> None:
    """The same model drafts: what it proposes is valid, and without rejection sampling all of it is right."""
    params = sampling(**mode)
    target, drafter, output = make_core(), make_core(), []
    for core in (target, drafter):
        ready(core, compiler, OpenSequence(1, PROMPT, params))
    target.submit(Decode(1, len(PROMPT), 1))
    new = verdict_of(settle(target)).token_ids
    while True:
        output.extend(new)
        if output[-1] == EOS_TOKEN_ID:
            break
        length = len(PROMPT) + len(output)
        drafter.submit(Propose(1, length, tuple(new), 4, tree=tree))
        (proposal,) = (event for event in settle(drafter) if isinstance(event, Proposal))
        _check_paths(params, output, proposal)
        target.submit(Verify(1, length, proposal.draft_token_ids, proposal.draft_probs, proposal.parents))
        verdict = verdict_of(settle(target))
        new = verdict.token_ids
        if tree is None and params.acceptance is AcceptanceMode.COUPLED and new[-1] != EOS_TOKEN_ID:
            assert verdict.num_accepted_tokens == len(proposal.draft_token_ids)
    assert is_valid(output, SCHEMA)


def _check_paths(params: SamplingParams, output: Sequence[int], proposal: Proposal) -> None:
    """No draft before the end token breaks the grammar, on any path."""
    assert params.grammar is not None
    matcher = GrammarMatcher(LLMatcher(TOKENS, engine_grammar(params.grammar)), 0, output, vocabulary=TOKENS)
    for nodes in DraftTree.of_message(proposal.parents, len(proposal.draft_token_ids)).paths:
        path = [proposal.draft_token_ids[node] for node in nodes]
        assert EOS_TOKEN_ID in path or matcher.allowed(path) is not None


def test_a_grammar_that_is_being_compiled_holds_up_its_own_sequence_only(
    make_core: MakeCore, compiler: GrammarCompiler
) -> None:
    class Slow(GrammarCompiler):
        def __init__(self) -> None:
            self.future: Future[LLMatcher] = Future()

        def compile(self, grammar: Grammar, client: str = "") -> Future[LLMatcher]:
            return self.future

    slow = Slow()
    core = make_core(Grammars(slow))
    params = sampling(temperature=0)
    core.submit(OpenSequence(1, PROMPT, params))
    core.submit(Decode(1, len(PROMPT), 3))
    core.submit(OpenSequence(2, PROMPT, SamplingParams(temperature=0, max_tokens=9)))
    core.submit(Decode(2, len(PROMPT), 9))
    events = settle(core)
    assert sum(len(event.token_ids) for event in events if isinstance(event, Verdict)) == 9
    assert core.is_waiting
    assert not core.has_work
    assert params.grammar is not None
    slow.future.set_result(compiler.compile(params.grammar).result(timeout=30))
    assert core.has_work
    answered = [event for event in settle(core) if isinstance(event, Verdict)]
    assert [event.sequence_id for event in answered] == [1, 1, 1]
    assert not core.is_waiting


class Broken(Grammars):
    def begin(self, sequence: Any, grammar: Grammar, client: str) -> None:
        raise KeyError("dictionary is empty")


class Unreadable(Grammars):
    """Its compiler fails: another replica may do better."""

    def __init__(self, _: GrammarCompiler) -> None:
        failed: Future[LLMatcher] = Future()
        failed.set_exception(OSError("no tokenizer.json"))
        super().__init__(SimpleNamespace(compile=lambda *_: failed))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (Grammars, SequenceErrorCode.INVALID),
        (Broken, SequenceErrorCode.INTERNAL),
        (Unreadable, SequenceErrorCode.INTERNAL),
    ],
)
def test_a_grammar_or_command_that_fails_costs_its_own_sequence_only(
    make_core: MakeCore, compiler: GrammarCompiler, kind: type[Grammars], code: SequenceErrorCode
) -> None:
    core = make_core(kind(compiler))
    params = SamplingParams(grammar=Grammar(GrammarKind.REGEX, "a(b"), max_tokens=5)
    ready(core, compiler, OpenSequence(1, PROMPT, params))
    core.submit(OpenSequence(2, PROMPT, SamplingParams(temperature=0, max_tokens=5)))
    core.submit(Decode(2, len(PROMPT), 5))
    events = settle(core)
    assert [(error.sequence_id, error.code) for error in errors_of(events)] == [(1, code)]
    assert len(text_of(events, 2)) == 5
    core.submit(Decode(1, len(PROMPT), 5))
    assert [error.code for error in errors_of(settle(core))] == [SequenceErrorCode.UNKNOWN_SEQUENCE]


def test_a_sequence_goes_on_from_its_committed_output(make_core: MakeCore, compiler: GrammarCompiler) -> None:
    """As after the loss of a replica: the grammar stands where the output ends."""
    params = sampling(seed=21)
    expected = plain(make_core(), compiler, params)
    core, half = make_core(), len(expected) // 2
    ready(core, compiler, OpenSequence(1, PROMPT, params, tuple(expected[:half])))
    core.submit(Decode(1, len(PROMPT) + half, 400))
    events = [event for event in settle(core) if isinstance(event, Verdict)]
    assert [token_id for event in events for token_id in event.token_ids] == expected[half:]
    assert events[-1].finish_reason is FinishReason.STOP
