"""Drafts beside a tiny target's answers: what is replayed is what rounds do."""

import copy
import itertools
from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import DraftConfig, EngineConfig
from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.errors import ConfigError
from pilotfish.examine.acceptance import acceptance_of, replay
from pilotfish.examine.costs import DrafterPlace, measure_draft_model, measure_in_target
from pilotfish.examine.drafted_answer import DraftedAnswer
from pilotfish.examine.rehearsal import DraftWatch, FreeRows, Question, answer_all, draft_all
from pilotfish.messages import Decode, OpenSequence, Verdict
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.step_table import StepTable
from pilotfish.types import ModelInfo, SamplingParams, TreeRequest
from tests.support.engine_events import settle
from tests.support.tiny_llama import tiny_llama
from tests.support.tiny_models import tiny_eagle3_config

VOCAB, CONTEXT, LENGTH, DEPTH = 64, 128, 30, 5
GREEDY, SAMPLED = SamplingParams(temperature=0), SamplingParams(temperature=0.2, seed=3)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny_llama(vocab_size=VOCAB, max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def head() -> Eagle3Head:
    torch.manual_seed(23)
    module = Eagle3Head(tiny_eagle3_config())
    module.set_draft_vocabulary(torch.arange(12, 52))
    for parameter in module.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(6.0)
    return module.eval().requires_grad_(False)


def core_of(
    model: LlamaForCausalLM, head: Eagle3Head | str | None = None, *, is_watched: bool = True, context: int = CONTEXT
) -> tuple[EngineCore, list[DraftWatch]]:
    decoder = TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=context)
    watches: list[DraftWatch] = []
    drafter: InTargetDrafter | None = None
    if isinstance(head, Eagle3Head):
        decoder.capture(head.config.feature_layers)
        drafter = Eagle3Drafter(decoder, build_eagle3_head(decoder, copy.deepcopy(head)), top_m=8)
    elif head is not None:
        drafter = InTargetLookup(head, lookup_of(head)(DraftConfig(suffix_shared_tokens=0)), None, 1.0)
    if drafter is not None and is_watched:
        watches.append(DraftWatch(drafter, itertools.count().__next__))
        drafter = watches[0]
    engine = EngineConfig(kv_cache_tokens=1024, max_batch_tokens=48, dtype="float32", max_sequences=4)
    info = ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=VOCAB, max_context_tokens=context)
    return EngineCore(decoder, engine, info, drafter=drafter), watches


def questions(sampling: SamplingParams, count: int = 6) -> list[Question]:
    return [
        Question("chat", tuple((7 * at + 3 * place) % VOCAB for place in range(5 + at)), sampling)
        for at in range(count)
    ]


def num_real_rounds(
    model: LlamaForCausalLM,
    head: Eagle3Head | str,
    asked: Question,
    answer: DraftedAnswer,
    length: int,
    tree: TreeRequest | None = None,
) -> int:
    """Rounds of so many drafts that the same engine needs for the answer, after its first token."""
    core, _ = core_of(model, head, is_watched=False)
    core.step_costs = FreeRows()
    core.submit(
        OpenSequence(
            1,
            asked.token_ids,
            SamplingParams(
                temperature=asked.sampling.temperature,
                seed=asked.sampling.seed,
                max_tokens=len(answer.token_ids) + length + 1,
            ),
        )
    )
    core.submit(Decode(1, len(asked.token_ids), len(answer.token_ids) + length + 1, length, tree=tree))
    tokens: list[int] = []
    rounds = 0
    for verdict in (event for event in settle(core) if isinstance(event, Verdict)):
        if len(tokens) >= len(answer.token_ids):
            break
        rounds += bool(tokens)
        tokens.extend(verdict.token_ids)
    assert tuple(tokens[: len(answer.token_ids)]) == answer.token_ids
    return rounds


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("drafter", ["ngram", "eagle3"])
def test_rounds_that_are_replayed_are_those_that_run(
    model: LlamaForCausalLM, head: Eagle3Head, monkeypatch: pytest.MonkeyPatch, sampling: SamplingParams, drafter: str
) -> None:
    chosen = head if drafter == "eagle3" else drafter
    monkeypatch.setattr(DraftCosts, "thresholds", lambda *_: Thresholds(0.0, 0.0))
    core, (watch,) = core_of(model, chosen)
    asked = questions(sampling)
    answers = answer_all(core, asked, LENGTH, DEPTH, watch)
    assert [len(answer.token_ids) for answer in answers] == [LENGTH] * len(asked)
    assert acceptance_of(answers, DEPTH).tokens_per_round[DEPTH] > 1
    for question, answer in zip(asked, answers, strict=True):
        assert set(answer.drafts) >= set(range(1, LENGTH))
        for length in (1, DEPTH):
            rounds, place = 0, 1
            while place < LENGTH:
                place += min(answer.num_accepted(place), length) + 1
                rounds += 1
            assert num_real_rounds(model, chosen, question, answer, length) == rounds


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("drafter", ["suffix", "eagle3"])
def test_trees_that_are_replayed_are_those_that_run(
    model: LlamaForCausalLM, head: Eagle3Head, monkeypatch: pytest.MonkeyPatch, sampling: SamplingParams, drafter: str
) -> None:
    """Recorded once, as large as they grow, they say what those of smaller limits come to."""
    chosen = head if drafter == "eagle3" else drafter
    thresholds = Thresholds(0.3, 0.05) if drafter == "eagle3" else Thresholds(0.0, 0.0)
    monkeypatch.setattr(DraftCosts, "thresholds", lambda *_: thresholds)
    core, (watch,) = core_of(model, chosen)
    core.step_costs = FreeRows()
    asked = questions(sampling)
    answers = answer_all(core, asked, LENGTH, DEPTH, watch, tree=TreeRequest(63, 3))
    num_accepted = 0
    for question, answer in zip(asked, answers, strict=True):
        for length, num_nodes in ((2, 6), (DEPTH, 12)):
            rounds, place = 0, 1
            while place < LENGTH:
                tree = answer.draft_after(place).tree
                nodes, _ = (frozenset[int](), []) if tree is None else tree.grown(length, num_nodes, 3, thresholds)
                accepted = 0 if tree is None else tree.num_accepted(nodes, answer.token_ids[place:])
                num_accepted += accepted
                place += accepted + 1
                rounds += 1
            request = TreeRequest(num_nodes, 3)
            assert num_real_rounds(model, chosen, question, answer, length, request) == rounds
    assert num_accepted >= 5


def test_watching_changes_no_answer(model: LlamaForCausalLM, head: Eagle3Head) -> None:
    core, (watch,) = core_of(model, head)
    watched = answer_all(core, questions(SAMPLED), LENGTH, DEPTH, watch)
    plain = answer_all(core_of(model)[0], questions(SAMPLED), LENGTH, DEPTH)
    assert [answer.token_ids for answer in watched] == [answer.token_ids for answer in plain]
    assert not any(answer.drafts for answer in plain)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_a_copy_of_the_target_is_always_right(model: LlamaForCausalLM, sampling: SamplingParams) -> None:
    asked = questions(sampling)
    counted: list[int] = []
    answers = answer_all(core_of(model)[0], asked, LENGTH, DEPTH)
    drafted = draft_all(core_of(model)[0], asked, answers, DEPTH, counted.append)
    assert sum(counted) == len(asked) * (LENGTH - 1)
    acceptance = acceptance_of(drafted, DEPTH)
    assert acceptance.rates == (1.0,) * DEPTH
    assert replay(drafted, DEPTH)[0] == pytest.approx(DEPTH + 1, rel=0.2)


def test_a_draft_model_of_a_shorter_context_drafts_as_far_as_it_reaches(model: LlamaForCausalLM) -> None:
    asked = questions(GREEDY, 2)
    answers = answer_all(core_of(model)[0], asked, LENGTH, DEPTH)
    drafted = draft_all(core_of(model, context=20)[0], asked, answers, DEPTH)
    for question, answer in zip(asked, drafted, strict=True):
        reach = 20 - len(question.token_ids)
        assert answer.num_accepted(1) == DEPTH
        assert not any(answer.draft_after(place).token_ids for place in range(reach, LENGTH))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("drafter", ["ngram", "eagle3"])
def test_an_answer_that_is_there_is_followed(
    model: LlamaForCausalLM, head: Eagle3Head, sampling: SamplingParams, drafter: str
) -> None:
    """Whatever the target would say itself; drafts are those that it would have had as an answer of its own."""
    core, (watch,) = core_of(model, head if drafter == "eagle3" else drafter)
    own = answer_all(core, questions(sampling), LENGTH, DEPTH, watch)
    pairs = zip(questions(sampling), own, strict=True)
    asked = [replace(question, answer=answer.token_ids) for question, answer in pairs]
    if drafter == "ngram":  # which looks at nothing but the text
        asked = [replace(question, sampling=GREEDY) for question in asked]
    followed = answer_all(core, asked, LENGTH, DEPTH, watch)
    assert [answer.token_ids for answer in followed] == [answer.token_ids for answer in own]
    assert acceptance_of(followed, DEPTH).rates == acceptance_of(own, DEPTH).rates
    strange = [replace(question, answer=question.answer[::-1][:9]) for question in asked]
    followed = answer_all(core, strange, LENGTH, DEPTH, watch)
    assert [answer.token_ids for answer in followed] == [question.answer for question in strange]
    assert all(set(answer.drafts) >= set(range(1, 9)) for answer in followed)
    # Nothing of it is left for others.
    again = answer_all(core, questions(sampling), LENGTH, DEPTH, watch)
    assert [answer.token_ids for answer in again] == [answer.token_ids for answer in own]


def test_an_answer_that_ends_is_whole(model: LlamaForCausalLM) -> None:
    (long,) = answer_all(core_of(model)[0], questions(GREEDY, 1), LENGTH, DEPTH)
    end = long.token_ids[9]
    first = long.token_ids.index(end)
    ending = questions(SamplingParams(temperature=0, stop_token_ids=(end,)), 1)
    (short,) = answer_all(core_of(model)[0], ending, LENGTH, DEPTH)
    assert (short.token_ids, short.is_whole, long.is_whole) == (long.token_ids[: first + 1], True, False)


def test_a_prompt_that_is_refused_is_named(model: LlamaForCausalLM) -> None:
    too_long = [Question("chat", (1,) * 2000, GREEDY)]  # for the KV cache
    with pytest.raises(ConfigError, match="the target refuses a prompt"):
        answer_all(core_of(model)[0], too_long, LENGTH, DEPTH)


def test_costs_are_of_the_drafter_alone(model: LlamaForCausalLM, head: Eagle3Head) -> None:
    """By a clock that ticks once a look: a watched draft takes one tick, at any load."""
    core, (watch,) = core_of(model, head)
    costs = measure_in_target(core, watch, DEPTH, StepTable((1, 2), (5, 5)), 48)
    assert (costs.loads, costs.first_s, costs.further_s) == ((1, 4), (1, 1), (0.0, 0.0))
    assert (costs.passes_s(1, []), costs.passes_s(4, [4, 4])) == (1.0, 1.0)
    assert not core.has_work


def test_costs_of_a_draft_model_are_those_of_its_steps(model: LlamaForCausalLM) -> None:
    core, _ = core_of(model)
    costs = measure_draft_model(core, StepTable((1, 2), (5, 5)), 48, itertools.count().__next__)
    assert (costs.loads, costs.place) == ((1, 4), DrafterPlace.DRAFT_SERVICE)
    assert costs.passes_s(4, [4, 4]) == pytest.approx(3.0)
