"""What fails in a step, or behind it, costs the sequences of that step: the replica goes on, and nothing is kept."""

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from torch import Tensor
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig
from pilotfish.drafters.suffix.draft import SuffixIndex
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.engine import MAX_FAILED_STEPS
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.features import FeatureRequest
from pilotfish.messages import CloseSequence, Decode, Event, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.types import Grammar, GrammarKind, ModelInfo, SamplingParams, SequenceErrorCode
from tests.support.engine_events import GreedyText, MakeCore, settle, text_of
from tests.support.small_vocabulary import EOS_TOKEN_ID, SmallVocabulary

VOCAB, CONTEXT = 64, 128
GREEDY = SamplingParams(temperature=0, max_tokens=100)
PROMPT = tuple(range(30, 50))
"""A block and some."""
WANTED = FeatureRequest(0)


class Fault:
    """Breaks what calls it, as often as it is armed for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        if self.times:
            self.times -= 1
            raise MemoryError("no such luck")


class BrokenDecoder(TransformersDecoder):
    """Fails to run a step, or to move keys and values, half of them moved."""

    fault: Fault
    where: str

    def forward(self, step: StepInput) -> Tensor:
        if self.where == "forward":
            self.fault()
        return super().forward(step)

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        if self.where == "move" and self.fault.times:
            super().move_kv(moves[: len(moves) // 2])
            self.fault()
        super().move_kv(moves)


class BrokenFeatures(FeatureStore):
    """Fails to take a step in, or to give what a verdict brings."""

    def __init__(self, decoder: TransformersDecoder, when: str, fault: Fault) -> None:
        super().__init__(decoder, (0, 1))
        self._when, self._fault = when, fault

    def keep(self, *args: Any) -> None:
        if self._when == "keep":
            self._fault()
        super().keep(*args)

    def take(self, *args: Any) -> Any:
        if self._when == "take":
            self._fault()
        return super().take(*args)


class BrokenDrafter:
    """A drafter in the target that cannot even say what it has done."""

    name = "broken"
    max_draft_tokens = None

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    @property
    def num_rounds(self) -> int:
        self._fault()
        return 0

    def allocate(self, num_blocks: int) -> int:
        return 0

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        return [Drafts() for _ in wishes]


class BrokenIndex(SuffixIndex):
    """A lookup that cannot take in a sequence that has ended."""

    fault: Fault

    def finish(self, num_prompt_tokens: int) -> None:
        self.fault()


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(SmallVocabulary().tokenizer)
    yield compiler
    compiler.close()


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
def make_core(tiny_llama: LlamaForCausalLM, fault: Fault, compiler: GrammarCompiler) -> MakeCore:
    """Where it breaks: `forward`, `move`, `keep`, `take`, `drafter`, `index` or nowhere."""

    def make(where: str = "") -> EngineCore:
        decoder = BrokenDecoder(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=CONTEXT)
        decoder.where = where
        decoder.fault = BrokenIndex.fault = fault
        drafters = {
            "drafter": BrokenDrafter(fault),
            "index": InTargetLookup("suffix", lambda _: BrokenIndex(min_probability=0.1), None, 0.0),
        }
        return EngineCore(
            decoder,
            EngineConfig(kv_cache_tokens=1024, max_batch_tokens=48, dtype="float32", max_draft_tokens=8),
            ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=VOCAB, max_context_tokens=CONTEXT),
            features=BrokenFeatures(decoder, where, fault),
            drafter=drafters.get(where),  # type: ignore[arg-type]
            grammars=Grammars(compiler),
        )

    return make


def tree_of(text: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Drafts and parents: wrong ones beside the right ones, so that accepted keys and values have to move."""
    wrong = [(token_id + 1) % VOCAB for token_id in text[:3]]
    return (wrong[0], text[0], wrong[1], text[1], wrong[2], text[2]), (-1, -1, 1, 1, 3, 3)


def errors_of(events: Sequence[Event]) -> dict[int, SequenceErrorCode]:
    return {event.sequence_id: event.code for event in events if isinstance(event, SequenceError)}


@pytest.mark.parametrize("where", ["forward", "move", "keep", "take", "drafter"])
def test_a_failing_step_ends_its_sequences_alone(
    make_core: MakeCore, greedy_text: GreedyText, fault: Fault, where: str
) -> None:
    core, right = make_core(where), greedy_text(PROMPT, 40)
    for sequence_id in (1, 2, 3, 4):
        core.submit(OpenSequence(sequence_id, (sequence_id, *PROMPT) if sequence_id == 3 else PROMPT, GREEDY))
    settle(core)
    drafts, parents = tree_of(right)
    fault.times = 1
    core.submit(Verify(1, len(PROMPT), drafts, parents=parents, features=WANTED))
    core.submit(Decode(2, len(PROMPT), 1, features=WANTED))  # its result is lost as well
    assert errors_of(events := settle(core)) == {1: SequenceErrorCode.INTERNAL, 2: SequenceErrorCode.INTERNAL}
    assert not any(isinstance(event, Verdict) for event in events)
    assert fault.times == 0
    core.submit(Decode(3, len(PROMPT) + 1, 5))
    assert text_of(settle(core), 3) == greedy_text((3, *PROMPT), 5)
    # What was left behind in the prefix cache is what it says: the same tokens again, found there as far as they are.
    committed = (*PROMPT, *right[:20])
    core.submit(OpenSequence(1, committed, GREEDY))
    core.submit(Decode(1, len(committed), 10))
    assert text_of(settle(core), 1) == right[20:30]
    for sequence_id in (1, 3, 4):
        core.submit(CloseSequence(sequence_id))
    core.step()
    assert core.kv_cache.pool.num_used == 0
    assert core.load().num_sequences_running == core.load().num_sequences_waiting == 0


def test_keys_that_were_not_moved_are_never_found(make_core: MakeCore, greedy_text: GreedyText, fault: Fault) -> None:
    """The accepted path fills a block: it would be findable, with keys in the wrong places."""
    core = make_core("move")
    for length in range(27, 34):
        prompt = tuple(range(length))
        right = greedy_text(prompt, 12)
        drafts, parents = tree_of(right)
        core.submit(OpenSequence(1, prompt, GREEDY))
        settle(core)
        fault.times = 1
        core.submit(Verify(1, length, drafts, parents=parents))
        assert errors_of(settle(core)) == {1: SequenceErrorCode.INTERNAL}
        committed = (*prompt, *right[:6])
        core.submit(OpenSequence(2, committed, GREEDY))
        core.submit(Decode(2, len(committed), 6))
        assert text_of(settle(core), 2) == right[6:12]
        core.submit(CloseSequence(2))
        core.step()
        assert core.kv_cache.pool.num_used == 0


@pytest.mark.parametrize("where", ["keep", "take", "drafter"])
def test_a_sequence_that_ends_in_the_failing_step_is_told(make_core: MakeCore, fault: Fault, where: str) -> None:
    core = make_core(where)
    core.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, max_tokens=1)))
    core.submit(OpenSequence(2, PROMPT, GREEDY))
    settle(core)
    fault.times = 1
    core.submit(Decode(1, len(PROMPT), 1))
    core.submit(Decode(2, len(PROMPT), 1, features=WANTED))
    assert errors_of(settle(core)) == {1: SequenceErrorCode.INTERNAL, 2: SequenceErrorCode.INTERNAL}
    assert core.kv_cache.pool.num_used == 0


def test_a_grammars_state_goes_with_its_sequence(make_core: MakeCore, fault: Fault, compiler: GrammarCompiler) -> None:
    core = make_core("keep")
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"enum": ["ab", "abc"]}))
    sampling = SamplingParams(temperature=0, max_tokens=40, stop_token_ids=(EOS_TOKEN_ID,), grammar=grammar)
    texts = []
    for _ in range(2):
        core.submit(OpenSequence(1, PROMPT, sampling))
        compiler.compile(grammar).exception(timeout=30)
        core.submit(Decode(1, len(PROMPT), 3))
        core.step()
        fault.times = 1
        assert errors_of(settle(core)) == {1: SequenceErrorCode.INTERNAL}
        assert core.kv_cache.pool.num_used == 0
        core.submit(OpenSequence(2, PROMPT, sampling))
        core.submit(Decode(2, len(PROMPT), 40))
        texts.append(text_of(settle(core), 2))
    assert texts[0] == texts[1]
    assert texts[0][-1] == EOS_TOKEN_ID


def test_a_lookup_that_fails_at_an_end_costs_nothing(
    make_core: MakeCore, greedy_text: GreedyText, fault: Fault
) -> None:
    core = make_core("index")
    for sequence_id in (1, 2):
        fault.times = 1
        core.submit(OpenSequence(sequence_id, PROMPT, SamplingParams(temperature=0, max_tokens=5)))
        core.submit(Decode(sequence_id, len(PROMPT), 5, num_draft_tokens=2))
        events = settle(core)
        assert (errors_of(events), text_of(events, sequence_id)) == ({}, greedy_text(PROMPT, 5))
        assert (core.kv_cache.pool.num_used, fault.times) == (0, 0)


def test_a_replica_on_which_it_always_fails_ends(make_core: MakeCore, fault: Fault) -> None:
    core = make_core("keep")
    fault.times = MAX_FAILED_STEPS
    for sequence_id in range(MAX_FAILED_STEPS):
        core.submit(OpenSequence(sequence_id, PROMPT, GREEDY))
        core.submit(Decode(sequence_id, len(PROMPT), 1))
        is_last = sequence_id == MAX_FAILED_STEPS - 1
        with pytest.raises(MemoryError) if is_last else contextlib.nullcontext():
            core.step()


def test_failures_between_good_steps_never_add_up(make_core: MakeCore, fault: Fault) -> None:
    core = make_core("keep")
    for sequence_id in range(2 * MAX_FAILED_STEPS):
        fault.times = 1
        for each in (2 * sequence_id, 2 * sequence_id + 1):
            core.submit(OpenSequence(each, PROMPT, GREEDY))
            core.submit(Decode(each, len(PROMPT), 1))
            events = settle(core)
            assert len(errors_of(events)) == (each % 2 == 0)
            core.submit(CloseSequence(each))
