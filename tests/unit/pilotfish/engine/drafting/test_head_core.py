"""A head apart from its target drafts what it would draft beside it, and bears with whatever comes or does not."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig
from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.eagle3_drafter import Eagle3Drafter
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.features import FeatureFormat, FeatureRequest, Features
from pilotfish.messages import (
    CloseSequence,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.models.attention.sdpa import SdpaBackend
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.eagle3.factory import build_eagle3_head
from pilotfish.models.eagle3.module import Eagle3Head
from pilotfish.models.eagle3.torch_head import TorchEagle3Head
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import (
    AcceptanceMode,
    Grammar,
    GrammarKind,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    TreeRequest,
)
from tests.support.engine_events import settle
from tests.support.small_vocabulary import SmallVocabulary

VOCAB, CONTEXT, LAYERS = 64, 128, (0, 1, 1)
NUM_DRAFTS = 4
PROMPTS = [tuple(range(3, 40)), (7, 7, 9, 1, 30), tuple(range(60, 10, -3))]
GREEDY = SamplingParams(temperature=0, max_tokens=40)
SAMPLINGS = [
    GREEDY,
    SamplingParams(temperature=1.0, seed=7, max_tokens=40, frequency_penalty=0.3, repetition_penalty=1.2),
    SamplingParams(temperature=0.7, seed=3, max_tokens=40, acceptance=AcceptanceMode.REJECTION),
]


@pytest.fixture(scope="module")
def target_model(tiny_llama: LlamaForCausalLM) -> LlamaForCausalLM:
    return copy.deepcopy(tiny_llama).to(torch.bfloat16)


@pytest.fixture(scope="module")
def module(eagle3_module: Eagle3Head) -> Eagle3Head:
    return copy.deepcopy(eagle3_module).to(torch.bfloat16)


def info(**changes: object) -> ModelInfo:
    values = {"model_id": "tiny", "tokenizer_fingerprint": "none", "vocab_size": VOCAB, "max_context_tokens": CONTEXT}
    return ModelInfo(**{**values, **changes})


def engine_config(**changes: int) -> EngineConfig:
    return EngineConfig(**{"kv_cache_tokens": 1024, "max_batch_tokens": 48, "max_draft_tokens": 8, **changes})


@pytest.fixture
def target(target_model: LlamaForCausalLM) -> EngineCore:
    decoder = TransformersDecoder(copy.deepcopy(target_model), deterministic=True, max_context_tokens=CONTEXT)
    return EngineCore(decoder, engine_config(), info(), features=FeatureStore(decoder, LAYERS))


@pytest.fixture
def make_head_core(target_model: LlamaForCausalLM, module: Eagle3Head) -> Callable[..., HeadCore]:
    def make(grammars: Grammars | None = None, **changes: int) -> HeadCore:
        embeddings = nn.Embedding.from_pretrained(target_model.get_input_embeddings().weight.clone())
        head = TorchEagle3Head(copy.deepcopy(module), embeddings, SdpaBackend(deterministic=True))
        model = info(proposer="eagle3", feature_layers=LAYERS, feature_format=FeatureFormat.BF16)
        return HeadCore(head, engine_config(**changes), model, top_m=8, grammars=grammars)

    return make


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


class Rounds:
    """What an orchestrator does for some sequences: every round asks the head of all, then the target."""

    def __init__(self, target: EngineCore, head: HeadCore, sampling: SamplingParams, tree: TreeRequest | None) -> None:
        self.target, self.head, self.sampling, self.tree = target, head, sampling, tree
        self.texts: dict[int, list[int]] = {}
        self.prompt_lengths: dict[int, int] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.told: dict[int, int] = {}
        self.proposals: dict[tuple[int, int], Proposal] = {}

    def start(self, prompts: Sequence[Sequence[int]]) -> None:
        for sequence_id, prompt in enumerate(prompts):
            self.texts[sequence_id], self.told[sequence_id] = list(prompt), len(prompt)
            self.prompt_lengths[sequence_id] = len(prompt)
            for core in (self.target, self.head):
                core.submit(OpenSequence(sequence_id, tuple(prompt), self.sampling))
            self.target.submit(Decode(sequence_id, len(prompt), 1, features=FeatureRequest(0, FeatureFormat.BF16)))
        self.hear_verdicts()

    def hear_verdicts(self) -> None:
        for event in settle(self.target):
            if isinstance(event, Verdict):
                self.texts[event.sequence_id].extend(event.token_ids)
                self.verdicts[event.sequence_id] = event

    def propose(self, number: int, num_draft_tokens: int = NUM_DRAFTS) -> Propose:
        """With what the head has not been told yet."""
        text, told = self.texts[number], self.told[number]
        self.told[number] = len(text)
        features = self.verdicts[number].features
        return Propose(number, len(text), tuple(text[told:]), num_draft_tokens, features, self.tree)

    @property
    def running(self) -> list[int]:
        return [number for number, verdict in self.verdicts.items() if verdict.finish_reason is None]

    def play(self) -> None:
        running = self.running
        for number in running:
            room = self.sampling.max_tokens - (len(self.texts[number]) - self.prompt_lengths[number]) - 1
            if room > 0:
                self.head.submit(self.propose(number, min(NUM_DRAFTS, room)))
        answers = {event.sequence_id: event for event in settle(self.head) if isinstance(event, Proposal)}
        for number in running:
            length, answer = len(self.texts[number]), answers.get(number, Proposal(number, 0, ()))
            if number in answers:
                assert answer.base_length == length
                self.proposals[number, length] = answer
            features = FeatureRequest(length - 1, FeatureFormat.BF16)
            self.target.submit(
                Verify(number, length, answer.draft_token_ids, answer.draft_probs, answer.parents, features)
            )
        self.hear_verdicts()


@pytest.mark.parametrize("tree", [None, TreeRequest(8, 3)], ids=["chains", "trees"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "coupled", "rejection"])
def test_the_drafts_are_those_of_the_head_beside_the_target(
    target: EngineCore,
    make_head_core: Callable[..., HeadCore],
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


@pytest.fixture
def running(target: EngineCore, make_head_core: Callable[..., HeadCore]) -> Rounds:
    """One sequence that has got drafts for three rounds."""
    rounds = Rounds(target, make_head_core(), GREEDY, None)
    rounds.start(PROMPTS[:1])
    for _ in range(3):
        rounds.play()
    assert all(answer.draft_token_ids for answer in rounds.proposals.values())
    return rounds


def ask(core: HeadCore, *commands: OpenSequence | Propose | CloseSequence | Verify) -> list[Event]:
    for command in commands:
        core.submit(command)
    return [event for event in settle(core) if not isinstance(event, Opened)]


def test_without_features_there_are_no_drafts(make_head_core: Callable[..., HeadCore]) -> None:
    core = make_head_core()
    assert drafts_of(ask(core, OpenSequence(1, (3, 4, 5), GREEDY), Propose(1, 3, (), 4))) == ()


def test_features_in_the_middle_of_a_text_begin_a_part_of_it(
    running: Rounds, make_head_core: Callable[..., HeadCore]
) -> None:
    text, features = running.texts[0], all_features(running)
    core = make_head_core()
    part = features.since(20)
    # The head's part of the text is a text: it drafts as if the rest had never been.
    whole = ask(core, OpenSequence(1, tuple(text), GREEDY), Propose(1, len(text), (), 4, part))
    moved = msgspec.structs.replace(part, first_position=0)
    cut = ask(core, OpenSequence(2, tuple(text[20:]), GREEDY), Propose(2, len(text) - 20, (), 4, moved))
    assert isinstance(whole[0], Proposal)
    assert isinstance(cut[0], Proposal)
    assert whole[0].draft_token_ids == cut[0].draft_token_ids != ()


def all_features(rounds: Rounds) -> Features:
    """Of all but the last token of the first text, from a sequence of its own."""
    text = tuple(rounds.texts[0])
    rounds.target.submit(OpenSequence(99, text[:-1], GREEDY))
    rounds.target.submit(Decode(99, len(text) - 1, 1, features=FeatureRequest(0, FeatureFormat.BF16)))
    (verdict,) = (event for event in settle(rounds.target) if isinstance(event, Verdict))
    rounds.target.submit(CloseSequence(99))
    assert verdict.features is not None
    return verdict.features


def test_catching_up_with_a_run_is_as_good_as_a_fresh_start(
    running: Rounds, make_head_core: Callable[..., HeadCore]
) -> None:
    for num_tokens in (5, 1, 4):
        length = len(running.texts[0])
        request = FeatureRequest(running.told[0] - 1, FeatureFormat.BF16)
        running.target.submit(Decode(0, length, num_tokens, features=request))
        running.hear_verdicts()
        caught_up = drafts_of(ask(running.head, running.propose(0)))
        text = tuple(running.texts[0])
        fresh = Propose(1, len(text), (), NUM_DRAFTS, all_features(running))
        assert caught_up == drafts_of(ask(make_head_core(), OpenSequence(1, text, GREEDY), fresh)) != ()


def test_a_gap_begins_afresh_and_repeated_features_change_nothing(
    running: Rounds, make_head_core: Callable[..., HeadCore]
) -> None:
    text, features = running.texts[0], all_features(running)
    early = msgspec.structs.replace(
        features, num_tokens=8, data=features.data[: 8 * len(features.data) // features.num_tokens]
    )
    core = make_head_core()
    opened = OpenSequence(1, tuple(text), GREEDY)
    assert not drafts_of(ask(core, opened, Propose(1, len(text), (), 4, early)))
    after_gap = drafts_of(ask(core, Propose(1, len(text), (), 4, features.since(20))))
    fresh = drafts_of(ask(make_head_core(), opened, Propose(1, len(text), (), 4, features.since(20))))
    assert after_gap == fresh != ()
    assert drafts_of(ask(core, Propose(1, len(text), (), 4))) == fresh
    assert drafts_of(ask(core, Propose(1, len(text), (), 4, features.since(20)))) == fresh


def drafts_of(events: list[Event]) -> tuple[int, ...]:
    (answer,) = events
    assert isinstance(answer, Proposal)
    return answer.draft_token_ids


@pytest.mark.parametrize("spoil", [lambda data: data[:-2], lambda data: b"\xff" * len(data)], ids=["short", "nan"])
def test_garbage_in_place_of_features_costs_the_drafts_and_is_logged(
    running: Rounds,
    make_head_core: Callable[..., HeadCore],
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[bytes], bytes],
) -> None:
    text, features = running.texts[0], all_features(running)
    garbage = msgspec.structs.replace(features, data=spoil(features.data))
    core = make_head_core()
    with caplog.at_level(logging.WARNING):
        events = ask(core, OpenSequence(1, tuple(text), GREEDY), Propose(1, len(text), (), 4, garbage))
    assert drafts_of(events) == ()
    assert "features of a sequence are dropped" in caplog.text
    assert drafts_of(ask(core, Propose(1, len(text), (), 4, features))) != ()


def test_replaced_tokens_make_the_replica_forget(running: Rounds) -> None:
    text = running.texts[0]
    (error,) = ask(running.head, Propose(0, len(text), ((text[-1] + 1) % VOCAB,) * 3, 4))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.UNKNOWN_SEQUENCE
    assert running.head.load().num_kv_blocks_used == 0


def test_blocks_go_to_whoever_asks_and_the_longest_unserved_is_forgotten(
    running: Rounds, make_head_core: Callable[..., HeadCore]
) -> None:
    text, features = tuple(running.texts[0]), all_features(running)
    core = make_head_core(kv_cache_tokens=128)
    for number in (1, 2):
        assert drafts_of(ask(core, OpenSequence(number, text, GREEDY), Propose(number, len(text), (), 4, features)))
    assert drafts_of(ask(core, Propose(1, len(text), (), 4)))
    assert drafts_of(ask(core, OpenSequence(3, text, GREEDY), Propose(3, len(text), (), 4, features)))
    assert drafts_of(ask(core, Propose(1, len(text), (), 4)))
    (error,) = ask(core, Propose(2, len(text), (), 4))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.UNKNOWN_SEQUENCE


def test_more_at_once_than_there_is_room_for_get_nothing(
    running: Rounds, make_head_core: Callable[..., HeadCore]
) -> None:
    text, features = tuple(running.texts[0]), all_features(running)
    core = make_head_core(kv_cache_tokens=128, max_batch_tokens=512)
    commands = [
        command
        for number in (1, 2, 3)
        for command in (OpenSequence(number, text, GREEDY), Propose(number, len(text), (), 4, features))
    ]
    answers = {event.sequence_id: event for event in ask(core, *commands) if isinstance(event, Proposal)}
    assert [bool(answers[number].draft_token_ids) for number in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(("changes", "max_rows"), [({}, None), ({"max_batch_tokens": 512}, 48)])
def test_a_step_takes_as_many_rows_as_a_batch_may_have(
    running: Rounds, make_head_core: Callable[..., HeadCore], changes: dict[str, int], max_rows: int | None
) -> None:
    text, features = tuple(running.texts[0]), all_features(running)
    core = make_head_core(**changes)  # 48 rows: one prompt at a time
    for number in (1, 2):
        core.submit(OpenSequence(number, text, GREEDY))
        core.submit(Propose(number, len(text), (), 4, features))
    first, second = core.step(max_rows), core.step(max_rows)
    assert [event.sequence_id for event in first if isinstance(event, Proposal)] == [1]
    assert [event.sequence_id for event in second if isinstance(event, Proposal)] == [2]
    assert not core.has_work


def test_closing_frees_everything(running: Rounds) -> None:
    assert running.head.load().num_kv_blocks_used > 0
    running.head.submit(running.propose(0))
    assert ask(running.head, CloseSequence(0), CloseSequence(0), CloseSequence(77)) == []
    assert running.head.load().num_kv_blocks_used == 0
    assert running.head.load().num_sequences_running == 0


def test_a_failed_step_costs_its_sequences_not_the_replica(running: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(running.head._growth, "forward", fail)
        (error,) = ask(running.head, running.propose(0))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.INTERNAL
    assert running.head.load().num_kv_blocks_used == 0


def test_it_verifies_nothing(make_head_core: Callable[..., HeadCore]) -> None:
    (error,) = ask(make_head_core(), Verify(1, 3, (4,)))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.INVALID


@pytest.mark.parametrize("tree", [None, TreeRequest(8, 2)])
def test_a_head_keeps_to_the_grammar(
    target_model: LlamaForCausalLM, make_head_core: Callable[..., HeadCore], tree: TreeRequest | None
) -> None:
    vocabulary = SmallVocabulary()
    compiler = GrammarCompiler(vocabulary.tokenizer)
    letters = Grammar(GrammarKind.REGEX, "[a-z]{60}")
    compiler.compile(letters).result(timeout=30)
    decoder = TransformersDecoder(copy.deepcopy(target_model), deterministic=True, max_context_tokens=CONTEXT)
    features = FeatureStore(decoder, LAYERS)
    target = EngineCore(decoder, engine_config(), info(), features=features, grammars=Grammars(compiler))
    sampling = SamplingParams(temperature=0, max_tokens=40, grammar=letters)
    rounds = Rounds(target, make_head_core(grammars=Grammars(compiler)), sampling, tree)
    rounds.start(PROMPTS)
    while rounds.running:
        rounds.play()
    drafted = [token_id for proposal in rounds.proposals.values() for token_id in proposal.draft_token_ids]
    assert len(drafted) > 20
    assert all(vocabulary.texts[token_id].isalpha() for token_id in drafted)
    compiler.close()


def test_its_load_tells_of_grammars_that_its_compiler_died_of(make_head_core: Callable[..., HeadCore]) -> None:
    guard = GrammarGuard(Path("unused"), 64, ())
    guard.num_deaths = 2
    compiler = GrammarCompiler(SmallVocabulary().tokenizer, guard)
    assert make_head_core(grammars=Grammars(compiler)).load().num_grammar_deaths == 2
    compiler.close()
