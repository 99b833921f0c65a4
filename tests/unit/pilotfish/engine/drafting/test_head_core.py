"""A head apart from its target drafts what it would draft beside it."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.process.warm_up import warm_up_head
from pilotfish.messages import (
    Decode,
    OpenSequence,
    PredraftRequest,
    Proposal,
    Verdict,
)
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import (
    AcceptanceMode,
    Grammar,
    GrammarKind,
    SamplingParams,
    TreeRequest,
)
from tests.support.engine_events import settle
from tests.support.head_rounds import (
    CONTEXT,
    LAYERS,
    NUM_DRAFTS,
    PROMPTS,
    MakeHeadCore,
    Rounds,
    engine_config,
    info,
)
from tests.support.small_vocabulary import SmallVocabulary

GREEDY = SamplingParams(temperature=0, max_tokens=24)
COUPLED = SamplingParams(temperature=1.0, seed=7, max_tokens=24, frequency_penalty=0.3, repetition_penalty=1.2)
REJECTION = SamplingParams(temperature=0.7, seed=3, max_tokens=24, acceptance=AcceptanceMode.REJECTION)
TREE = TreeRequest(8, 3)


class RecordedDrafter(Eagle3Drafter):
    """Keeps what it drafted, by sequence and length."""

    drafted: dict[tuple[int, int], Drafts]

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        drafts = super().follow(kept, wishes)
        for wish, draft in zip(wishes.values(), drafts, strict=True):
            self.drafted[wish.sequence.sequence_id, len(wish.sequence.tokens)] = draft
        return drafts


@pytest.fixture
def beside(target_model: LlamaForCausalLM, module: Eagle3Head) -> tuple[EngineCore, RecordedDrafter]:
    decoder = TransformersDecoder(copy.deepcopy(target_model), deterministic=True, max_context_tokens=CONTEXT)
    decoder.capture(LAYERS)
    drafter = RecordedDrafter(decoder, build_eagle3_head(decoder, copy.deepcopy(module)), top_m=8)
    drafter.drafted = {}
    # A clock that stands still: what drafts cost must not decide how long they get here.
    return EngineCore(decoder, engine_config(), info(), drafter=drafter, clock_ns=lambda: 0), drafter


@pytest.mark.parametrize(
    ("sampling", "tree"),
    [(GREEDY, TREE), (COUPLED, None), (COUPLED, TREE), (REJECTION, None)],
    ids=["greedy-trees", "coupled-chains", "coupled-trees", "rejection-chains"],
)
def test_the_drafts_are_those_of_the_head_beside_the_target(
    target: EngineCore,
    make_head_core: MakeHeadCore,
    beside: tuple[EngineCore, RecordedDrafter],
    sampling: SamplingParams,
    tree: TreeRequest | None,
) -> None:
    core, drafter = beside
    texts = {number: list(prompt) for number, prompt in enumerate(PROMPTS)}
    for number, prompt in enumerate(PROMPTS):
        core.submit(OpenSequence(number, prompt, sampling))
        core.submit(Decode(number, len(prompt), sampling.max_tokens, NUM_DRAFTS, tree=tree))
    for event in settle(core):
        if isinstance(event, Verdict):
            texts[event.sequence_id].extend(event.token_ids)

    rounds = Rounds(target, make_head_core(), sampling, tree)
    rounds.start(PROMPTS)
    while rounds.running:
        rounds.play()

    assert rounds.texts == texts
    assert len(rounds.proposals) > 20
    assert {
        key: (answer.draft_token_ids, answer.parents, answer.draft_probs) for key, answer in rounds.proposals.items()
    } == {
        key: (drafts.token_ids, () if drafts.tree is None else drafts.tree.parents, drafts.probs)
        for key, drafts in drafter.drafted.items()
    }


def test_a_priced_tree_is_the_part_of_a_larger_one_that_is_worth_its_rows(
    target: EngineCore, make_head_core: MakeHeadCore
) -> None:
    rounds = Rounds(target, make_head_core(), GREEDY, None)
    rounds.start(PROMPTS)

    def drafted(row_price: float) -> set[tuple[int, tuple[int, ...]]]:
        asking = Rounds(target, make_head_core(), GREEDY, TreeRequest(8, 3, row_price))
        asking.texts, asking.verdicts = rounds.texts, rounds.verdicts
        asking.told = {number: len(text) for number, text in rounds.texts.items()}
        for number, text in rounds.texts.items():
            asking.head.submit(OpenSequence(number, tuple(text), GREEDY))
            asking.head.submit(asking.propose(number))
        return {
            (answer.sequence_id, tuple(answer.draft_token_ids[node] for node in path))
            for answer in settle(asking.head)
            if isinstance(answer, Proposal)
            for path in DraftTree.of_message(answer.parents, len(answer.draft_token_ids)).paths
            if path
        }

    cheap, dear, dearest = (drafted(row_price) for row_price in (0.001, 0.1, 1.0))
    assert cheap > dear > dearest
    assert {number for number, _ in dearest} == set(range(len(PROMPTS)))
    assert len(dearest) == len(PROMPTS), "the best token alone"


def test_who_follows_its_rounds_waits_for_no_prompt(target: EngineCore, make_head_core: MakeHeadCore) -> None:
    long_prompt = tuple(5 + number % 50 for number in range(110))
    rounds = Rounds(target, make_head_core(max_batch_tokens=256), GREEDY, None)
    rounds.start([long_prompt, PROMPTS[1]])
    rounds.head.submit(rounds.propose(0))
    rounds.head.submit(rounds.propose(1))
    first = [event.sequence_id for event in rounds.head.step() if isinstance(event, Proposal)]
    assert first == [1]
    (drafts,) = (event for event in settle(rounds.head) if isinstance(event, Proposal))

    alone = Rounds(target, make_head_core(max_batch_tokens=256), GREEDY, None)
    alone.texts, alone.told, alone.verdicts = rounds.texts, dict(rounds.told), rounds.verdicts
    alone.head.submit(OpenSequence(0, tuple(rounds.texts[0]), GREEDY))
    alone.head.submit(alone.propose(0))
    (expected,) = (event for event in alone.head.step() if isinstance(event, Proposal))
    assert drafts.draft_token_ids == expected.draft_token_ids != ()


def test_a_step_that_one_who_follows_fills_leaves_nothing_to_a_prompt(
    target: EngineCore, make_head_core: MakeHeadCore
) -> None:
    long_prompt = tuple(5 + number % 50 for number in range(90))
    rounds = Rounds(target, make_head_core(max_batch_tokens=9), GREEDY, None)
    rounds.start([long_prompt, tuple(range(3, 18))])
    for number in range(2):
        rounds.head.submit(rounds.propose(number))
    answers = [event for event in settle(rounds.head) if isinstance(event, Proposal)]
    assert [event.sequence_id for event in answers] == [1, 0]
    assert all(event.draft_token_ids for event in answers)


def test_a_head_of_small_steps_warms_up(make_head_core: MakeHeadCore) -> None:
    warm_up_head(make_head_core(max_batch_tokens=9))


@pytest.mark.parametrize("tree", [None, TREE], ids=["chains", "trees"])
def test_a_head_keeps_to_the_grammar(
    target_model: LlamaForCausalLM, make_head_core: MakeHeadCore, tree: TreeRequest | None
) -> None:
    vocabulary = SmallVocabulary()
    compiler = GrammarCompiler(vocabulary.tokenizer)
    letters = Grammar(GrammarKind.REGEX, "([b-m][n-z]){20}")
    compiler.compile(letters).result(timeout=30)
    decoder = TransformersDecoder(copy.deepcopy(target_model), deterministic=True, max_context_tokens=CONTEXT)
    features = FeatureStore(decoder, LAYERS)
    target = EngineCore(decoder, engine_config(), info(), features=features, grammars=Grammars(compiler))
    sampling = SamplingParams(temperature=0, max_tokens=24, grammar=letters)
    rounds = Rounds(target, make_head_core(grammars=Grammars(compiler)), sampling, tree)
    rounds.ahead = PredraftRequest(24, (0.5,))
    rounds.start(PROMPTS)
    while rounds.running:
        rounds.play()
    drafted = [
        (vocabulary.texts[proposal.draft_token_ids[node]], length - len(PROMPTS[number]) + depth)
        for (number, length), proposal in rounds.proposals.items()
        for path in DraftTree.of_message(proposal.parents, len(proposal.draft_token_ids)).paths
        for depth, node in enumerate(path)
    ]
    assert len(drafted) > 20
    assert all("bn"[place % 2] <= text <= "mz"[place % 2] for text, place in drafted)
    compiler.close()


def test_its_load_tells_of_grammars_that_its_compiler_died_of(make_head_core: MakeHeadCore) -> None:
    guard = GrammarGuard(Path("unused"), 64, ())
    guard.num_deaths = 2
    compiler = GrammarCompiler(SmallVocabulary().tokenizer, guard)
    assert make_head_core(grammars=Grammars(compiler)).load().num_grammar_deaths == 2
    compiler.close()
