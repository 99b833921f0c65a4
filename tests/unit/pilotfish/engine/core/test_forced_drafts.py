"""What a grammar forces is drafted, and no text shows it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from pilotfish.drafters.grammar.draft import GrammarDrafter
from pilotfish.engine.core.cache.block_pool import BlockPool
from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.drafts import Drafts, ForcedSpan
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.forced_drafts import ForcedDrafts, joined
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.messages import Decode, Event, OpenSequence, Verdict, Verify
from pilotfish.speculation.rounds import Round, verify
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.types import BLOCK_SIZE, AcceptanceMode, Grammar, GrammarKind, SamplingParams, SparseDistribution
from tests.support.engine_events import MakeCore, settle, text_of, verdicts_of
from tests.support.json_schemas import random_object_schema
from tests.support.small_vocabulary import EOS_TOKEN_ID, SmallVocabulary

PROMPT = (1, 5, 9, 2, 33, 7)
VOCABULARY = SmallVocabulary()
TOKENS = VOCABULARY.tokenizer()
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["alpha", "beta", "betx"]},
        "ab": {"type": "string", "maxLength": 3},
        "no": {"type": "array", "items": {"enum": [12, "false", True]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["kind", "ab", "no"],
    "additionalProperties": False,
}
MODES = [
    {"temperature": 0},
    {"seed": 11},
    {"seed": 12, "top_p": 0.8, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    {"temperature": 0, "num_logprobs": 2},
    {"seed": 4, "min_tokens": 30},
    {"seed": 5, "max_tokens": 13},
    {"seed": 6, "stop_token_ids": (EOS_TOKEN_ID, VOCABULARY.encode("k")[0])},
    {"seed": 7, "bad_words": (tuple(VOCABULARY.encode("ab")), tuple(VOCABULARY.encode('{"')))},
    {"seed": 8, "logit_bias": ((VOCABULARY.encode('"')[0], 20.0),)},
]


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(lambda: TOKENS)
    yield compiler
    compiler.close()


MakeForcing = Callable[..., EngineCore]


@pytest.fixture
def make_forcing(make_core: MakeCore, compiler: GrammarCompiler) -> MakeForcing:
    """An engine that drafts what is forced; drafter=None: one that does not."""

    def make(drafter: Any = None) -> EngineCore:
        return make_core(grammars=Grammars(compiler), forced_tokens=drafter, context=512, kv_cache_tokens=4096)

    return make


def sampling(grammar: Any = SCHEMA, **changes: Any) -> SamplingParams:
    if not isinstance(grammar, Grammar):
        grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(grammar))
    return SamplingParams(**{"max_tokens": 200, "stop_token_ids": (EOS_TOKEN_ID,), "grammar": grammar, **changes})


def open_ready(core: EngineCore, compiler: GrammarCompiler, params: SamplingParams) -> None:
    core.submit(OpenSequence(1, PROMPT, params))
    assert params.grammar is not None
    compiler.compile(params.grammar).exception(timeout=30)


def decoded(
    core: EngineCore, compiler: GrammarCompiler, params: SamplingParams, *, takes_forced: bool = True
) -> list[Event]:
    open_ready(core, compiler, params)
    core.submit(Decode(1, len(PROMPT), 200, takes_forced_drafts=takes_forced))
    return settle(core)


def of_forced(events: Sequence[Event]) -> tuple[int, int]:
    """(drafted, accepted) tokens of the grammar."""
    verdicts = verdicts_of(events)
    return sum(each.num_grammar_tokens for each in verdicts), sum(each.num_accepted_grammar_tokens for each in verdicts)


def told(events: Sequence[Event]) -> Any:
    verdicts = verdicts_of(events)
    logprobs = [[(each.logprob, each.top_token_ids) for each in verdict.logprobs] for verdict in verdicts]
    return text_of(events), [each for group in logprobs for each in group], verdicts[-1].finish_reason


@pytest.mark.parametrize("mode", MODES)
def test_the_answer_is_the_same_in_fewer_steps(
    make_forcing: MakeForcing, compiler: GrammarCompiler, mode: dict[str, Any]
) -> None:
    params = sampling(**mode)
    plain, forced = (decoded(make_forcing(drafter), compiler, params) for drafter in (None, GrammarDrafter(max_s=60)))
    (text, logprobs, reason), expected = told(forced), told(plain)
    assert (text, reason) == (expected[0], expected[2])
    assert [each[1] for each in logprobs] == [each[1] for each in expected[1]]
    np.testing.assert_allclose([each[0] for each in logprobs], [each[0] for each in expected[1]], atol=1e-4)
    assert of_forced(forced)[1] > 0
    assert len(verdicts_of(forced)) <= len(text) - of_forced(forced)[1] + 1  # an end that was drafted


ENDLESS = Grammar(GrammarKind.LARK, 'start: "t" | "{" x\nx: "' + "x" * 300 + '" x "b"')
AMBIGUOUS = Grammar(GrammarKind.REGEX, "(ab|a)(ab|b){2}no(true|tru){1,3}")
OPEN_ENDED = Grammar(GrammarKind.REGEX, 'a"(}}|\\}"|\\},){2,4}')


@pytest.mark.parametrize("grammar", [ENDLESS, AMBIGUOUS, OPEN_ENDED, *map(random_object_schema, range(6))])
@pytest.mark.parametrize("mode", MODES[:2])
def test_so_it_is_with_grammars_of_any_kind(
    make_forcing: MakeForcing, compiler: GrammarCompiler, grammar: Any, mode: dict[str, Any]
) -> None:
    """Endless ones, those whose text is certain and whose tokens are not, and random ones."""
    params = sampling(grammar, **mode)
    plain, forced = (decoded(make_forcing(drafter), compiler, params) for drafter in (None, GrammarDrafter(max_s=60)))
    assert told(forced) == told(plain)


FOLLOWED_NO_FURTHER = {
    **{"type": "object", "required": ["kab"], "additionalProperties": False},
    "properties": {"kab": {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(900)}}},
}
"""Behind the name come more optional properties than the library can follow."""


@pytest.mark.parametrize("limits", [{"stop_token_ids": tuple(VOCABULARY.encode('k"'))}, {}])
def test_what_the_library_cannot_follow_ends_no_answer_before_it_is_there(
    make_forcing: MakeForcing, compiler: GrammarCompiler, limits: dict[str, Any]
) -> None:
    params = sampling(FOLLOWED_NO_FURTHER, temperature=0, **limits)
    plain, forced = (decoded(make_forcing(drafter), compiler, params) for drafter in (None, GrammarDrafter(max_s=60)))
    assert told(forced) == told(plain)
    assert of_forced(forced)[1] > 0
    assert forced[-1] == plain[-1] or limits


def test_nothing_is_drafted_for_a_command_that_does_not_take_it(
    make_forcing: MakeForcing, compiler: GrammarCompiler
) -> None:
    events = decoded(make_forcing(GrammarDrafter(max_s=60)), compiler, sampling(seed=1), takes_forced=False)
    assert all(verdict.num_draft_tokens == 0 for verdict in verdicts_of(events))


class Failing:
    def draft(self, *_: Any, **__: Any) -> ForcedSpan:
        raise KeyError("no such token")

    def learn(self, *_: Any) -> None:
        raise KeyError("no such place")


class Lying(Failing):
    """Drafts what the grammar forbids."""

    def draft(self, grammar: Any, token_ids: Sequence[int], max_tokens: int, **_: Any) -> ForcedSpan:
        return ForcedSpan((9, 0, 61)[:max_tokens], ((1, 2, 9),))


@pytest.mark.parametrize("drafter", [Failing(), Lying()])
def test_a_drafter_that_is_wrong_costs_no_answer(
    make_forcing: MakeForcing, compiler: GrammarCompiler, drafter: Any
) -> None:
    params = sampling(seed=3)
    assert told(decoded(make_forcing(drafter), compiler, params)) == told(decoded(make_forcing(), compiler, params))


@pytest.mark.parametrize("acceptance", [AcceptanceMode.COUPLED, AcceptanceMode.REJECTION])
@pytest.mark.parametrize("drafts", ["right", "wrong", "right and then wrong", "nothing"])
def test_a_peers_draft_goes_on_behind_what_is_forced(
    make_forcing: MakeForcing, compiler: GrammarCompiler, drafts: str, acceptance: AcceptanceMode
) -> None:
    params = sampling(seed=2, acceptance=acceptance)
    expected = text_of(decoded(make_forcing(), compiler, params))
    core, output = make_forcing(GrammarDrafter(max_s=60)), []
    open_ready(core, compiler, params)
    core.submit(Decode(1, len(PROMPT), 1, takes_forced_drafts=True))
    output.extend(text_of(settle(core)))
    num_forced = 0
    while output[-1] != EOS_TOKEN_ID:
        right = expected[len(output) :][:4]
        token_ids = {"right": right, "wrong": [9, 9], "right and then wrong": [*right[:1], 9], "nothing": []}[drafts]
        probs = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in token_ids)
        given = probs if acceptance is AcceptanceMode.REJECTION else ()
        core.submit(Verify(1, len(PROMPT) + len(output), tuple(token_ids), given, takes_forced_drafts=True))
        (verdict,) = verdicts_of(settle(core))
        assert verdict.num_draft_tokens >= verdict.first_grammar_token + verdict.num_grammar_tokens
        num_forced += verdict.num_accepted_grammar_tokens
        output.extend(verdict.token_ids)
        if acceptance is AcceptanceMode.COUPLED:
            assert output == expected[: len(output)]
    assert num_forced > 0 or drafts == "right"  # then they are the peer's
    assert json.loads(VOCABULARY.decode(output))


class Mask:
    """Tokens 1, 2 and 4 are ways to write what is forced; behind it, anything."""

    def allowed(self, draft_token_ids: Sequence[int]) -> bytes:
        return bytes([0b10110 if len(draft_token_ids) < 2 else 0b11111111])


def test_in_rejection_mode_every_token_has_the_targets_distribution() -> None:
    """Whatever was drawn before, agreeing with what is forced or not."""
    generator, num_rounds = np.random.default_rng(1), 30_000
    grammar = Grammar(GrammarKind.REGEX, "a")
    logits = torch.tensor([[0, 0.4, 1.2, 0, 0.1, 0, 0, 0], [0, 0.9, 0.3, 0, 1.0, 0, 0, 0], [*np.linspace(0, 2, 8)]])
    forced, drawn_from = (2, 4), SparseDistribution((1, 2, 4), (0.3, 0.5, 0.2))
    rounds = []
    for seed in range(num_rounds):
        params = SamplingParams(seed=seed, acceptance=AcceptanceMode.REJECTION, grammar=grammar)
        drawn = tuple(int(token) for token in generator.choice((1, 2, 4), 3, p=drawn_from.probs))
        drafts = joined(Drafts(drawn, (drawn_from,) * 3), forced, params)
        rounds.append(Round(params, 10, drafts.token_ids, drafts.probs, None, constraint=Mask()))
    rows = [row for each in rounds for row in range(len(each.draft_token_ids) + 1)]
    outcomes = verify(logits[torch.tensor([min(row, 2) for row in rows])], rounds)
    texts = [outcome.token_ids for outcome in outcomes]
    for place, allowed in enumerate(((1, 2, 4), (1, 2, 4), range(8))):
        reached = [text for text in texts if len(text) > place and text[:place] == forced[:place]]
        counts = Counter(text[place] for text in reached)
        weights = {token: float(logits[place, token].exp()) for token in allowed}
        for token, weight in weights.items():
            share = weight / sum(weights.values())
            assert abs(counts[token] / len(reached) - share) < 5 * (share * (1 - share) / len(reached)) ** 0.5


def test_what_one_client_is_told_teaches_nothing_about_another(
    make_forcing: MakeForcing, compiler: GrammarCompiler
) -> None:
    """Drafts are seen in an answer's counts and in its time: a request's `cache_salt` keeps them apart."""

    def answered(core: EngineCore, sequence_id: int, cache_salt: str) -> Any:
        core.submit(OpenSequence(sequence_id, PROMPT, params, cache_salt=cache_salt))
        core.submit(Decode(sequence_id, len(PROMPT), 200, takes_forced_drafts=True))
        verdicts = verdicts_of(settle(core))
        return [(each.num_draft_tokens, each.num_accepted_tokens, each.token_ids) for each in verdicts]

    params = sampling(seed=11)
    compiler.compile(params.grammar or Grammar(GrammarKind.REGEX, "a")).exception(timeout=30)
    core = make_forcing(GrammarDrafter(max_s=60))
    first = answered(core, 1, "a")
    for sequence_id in range(2, 12):
        learned = answered(core, sequence_id, "a")
    assert learned != first
    assert answered(core, 12, "b") == first


def drafting(step_s: Callable[[float], float], **limits: int) -> ForcedDrafts:
    class Eight(Failing):
        def draft(self, *_: Any, **__: Any) -> ForcedSpan:
            return ForcedSpan((1, 2, 3, 4, 5, 6, 7, 8))

    settings = {"max_draft_tokens": 8, "max_context_tokens": 512, "max_logit_rows": 64}
    kv_cache = KVCache(BlockPool(limits.pop("num_blocks", 65), BLOCK_SIZE, prefix_caching=False))
    return ForcedDrafts(Eight(), kv_cache, **(settings | limits), step_s=step_s)


def sequences(num: int, num_output_tokens: int = 2) -> list[EngineSequence]:
    class Anything:
        def append(self, token_ids: Sequence[int]) -> None:
            """It follows no grammar."""

    made = []
    for index in range(num):
        sequence = EngineSequence(OpenSequence(index, PROMPT, SamplingParams(), (3,) * num_output_tokens))
        sequence.decode(Decode(index, len(PROMPT) + num_output_tokens, 20, takes_forced_drafts=True), 0)
        sequence.follow(Anything())
        made.append(sequence)
    return made


def test_forced_drafts_are_as_many_as_repay_their_rows() -> None:
    for step_s, expected in (
        (lambda rows: 1.0, 8),
        (lambda rows: rows, 0),
        (lambda rows: 1.0 if rows <= 6 else 20.0, 5),
    ):
        drafts, (sequence,) = drafting(step_s), sequences(1)
        drafts.after_step(1, step_s(1))
        drafts.before_step([sequence])
        assert len(sequence.drafts) == expected


def test_what_a_step_has_room_for_goes_to_all_alike() -> None:
    several = sequences(4)
    drafting(lambda rows: 0.0, max_logit_rows=16).before_step(several)
    assert [len(sequence.drafts) for sequence in several] == [3, 3, 3, 3]


@pytest.mark.parametrize(("rows", "later_rows", "num_drafts"), [(4, 9, 8), (9, 4, 8), (4, 1, 3)])
def test_what_waits_for_a_step_is_told_as_the_grammars_own(rows: int, later_rows: int, num_drafts: int) -> None:
    """However many more are put behind it: a run is not taken for one that a peer's draft has ended."""
    num_free = rows
    drafts = drafting(lambda rows: 1.0 if rows <= num_free else 50.0)
    run, verification = sequences(2)
    verification.verify(Drafts((1, 9)), None, 0)
    for sequence, num_left in ((run, 0), (verification, 1)):
        for num_free in (rows, later_rows):  # noqa: B007 - step_s reads it
            drafts.after_step(1, 1.0)
            drafts.before_step([sequence])
        assert len(sequence.drafts) == num_drafts
        assert sequence.drafts.forced == (num_left, num_drafts)


def test_the_first_token_waits_for_no_more_rows_than_are_free() -> None:
    (sequence,) = sequences(1, num_output_tokens=0)
    drafting(lambda rows: 1.0 if rows <= 4 else 2.0).before_step([sequence])
    assert len(sequence.drafts) == 3


def test_a_draft_takes_no_place_that_the_cache_has_not() -> None:
    (sequence,) = sequences(1, num_output_tokens=8)
    drafting(lambda rows: 0.0, num_blocks=2).before_step([sequence])
    assert len(sequence.drafts) == BLOCK_SIZE - len(sequence.tokens)


def test_a_draft_is_cut_where_it_leaves_what_is_forced() -> None:
    params = SamplingParams()
    assert joined(Drafts((1, 2, 9, 9)), (1, 2, 3), params) == Drafts((1, 2, 3), forced=(2, 3))
    assert joined(Drafts((1, 2, 3, 9)), (1, 2, 3), params) == Drafts((1, 2, 3, 9))
    assert joined(Drafts(), (1, 2), params) == Drafts((1, 2), forced=(0, 2))
    assert joined(Drafts(), (1, 2), params).cut(1, 1).forced == (0, 1)


def test_a_verdict_tells_what_the_grammar_drafted(make_forcing: MakeForcing, compiler: GrammarCompiler) -> None:
    first: Verdict = verdicts_of(decoded(make_forcing(GrammarDrafter(max_s=60)), compiler, sampling(seed=1)))[0]
    assert (first.first_grammar_token, first.num_grammar_tokens) == (0, first.num_draft_tokens)
    assert not first.num_draft_tokens or first.is_plain_or_forced
