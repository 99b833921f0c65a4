"""The emulated engine keeps the promises of the real one."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.engine.core.scheduler import LONG_IDLE_NS
from pilotfish.errors import UnavailableError
from pilotfish.messages import (
    CloseSequence,
    Decode,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    Verdict,
    Verify,
)
from pilotfish.types import Limits, ModelInfo, SamplingParams, TreeRequest

LANGUAGE_MODEL = HashLanguageModel()
GREEDY = SamplingParams(temperature=0, max_tokens=1000)
PROMPT = (1, 2, 3)


PER_ROW = RooflineCost(weights_s=0.0, token_s=1.0)
"""A second for each token row."""


def core(acceptance: float = 0.7, max_context_tokens: int = 4096, **options: Any) -> EmulatedCore:
    model = ModelInfo(
        model_id="emulated", tokenizer_fingerprint="", vocab_size=256, max_context_tokens=max_context_tokens
    )
    limits = Limits(max_draft_tokens=8, max_sequences=4)
    return EmulatedCore(model, limits, LANGUAGE_MODEL, acceptance=acceptance, **options)


def drain(core: EmulatedCore) -> list:
    events = []
    while core.has_work:
        events += core.step()
    return events


def decoded(sampling: SamplingParams, num_tokens: int, prompt: tuple[int, ...] = PROMPT) -> tuple[int, ...]:
    target = core()
    target.submit(OpenSequence(1, prompt, sampling))
    target.submit(Decode(1, len(prompt), num_tokens))
    return tuple(token_id for event in drain(target) if isinstance(event, Verdict) for token_id in event.token_ids)


def speculated(sampling: SamplingParams, num_tokens: int, acceptance: float, k: int) -> tuple[tuple[int, ...], list]:
    """The text of draft-and-verify rounds, and their verdicts."""
    target, drafter = core(), core(acceptance)
    for engine in (target, drafter):
        engine.submit(OpenSequence(1, PROMPT, sampling))
        drain(engine)
    tokens, new, verdicts = list(PROMPT), (), []
    while len(tokens) < len(PROMPT) + num_tokens:
        drafter.submit(Propose(1, len(tokens), new, k))
        (proposal,) = drain(drafter)
        assert isinstance(proposal, Proposal)
        target.submit(Verify(1, len(tokens), proposal.draft_token_ids))
        (verdict,) = drain(target)
        assert isinstance(verdict, Verdict)
        assert (
            verdict.token_ids[: verdict.num_accepted_tokens] == proposal.draft_token_ids[: verdict.num_accepted_tokens]
        )
        new = verdict.token_ids
        tokens += new
        verdicts.append(verdict)
    return tuple(tokens[len(PROMPT) :][:num_tokens]), verdicts


@given(st.floats(0, 1), st.integers(1, 8), st.sampled_from([GREEDY, SamplingParams(seed=5, max_tokens=1000)]))
def test_speculation_does_not_change_the_text(acceptance: float, k: int, sampling: SamplingParams) -> None:
    assert speculated(sampling, 30, acceptance, k)[0] == decoded(sampling, 30)


def test_acceptance_is_the_asked_one() -> None:
    for acceptance in (0.0, 0.5, 0.9, 1.0):
        _, verdicts = speculated(GREEDY, 2000 // 4, acceptance, 1)
        rate = sum(verdict.num_accepted_tokens for verdict in verdicts) / len(verdicts)
        assert rate == pytest.approx(acceptance, abs=0.07)


@pytest.mark.parametrize("step_acceptance", [0.0, 0.3, 0.9, 1.0])
def test_a_judge_hears_the_best_score_as_often_as_is_asked_for_and_else_the_worst(step_acceptance: float) -> None:
    """Whatever the question, which is the end of every text."""
    model = HashLanguageModel(step_acceptance=step_acceptance)
    scale = (70, 50, 60)
    judging = SamplingParams(temperature=0, max_tokens=1, logit_bias=tuple((token_id, 100.0) for token_id in scale))
    scores = [model.next_token([step, 2, 3, 4, 5, 6], judging) for step in range(1000)]
    assert set(scores) <= {70, 60}
    assert scores.count(60) / len(scores) == pytest.approx(step_acceptance, abs=0.05)


def test_side_branches_of_a_tree_gain_tokens() -> None:
    """A chain of 4 at acceptance 0.5 yields 1.94 tokens a verification; a tree has the next best guesses as well."""
    drafter, target = core(0.5), core()
    prompts = [(number, 2, 3) for number in range(200)]
    for engine in (drafter, target):
        for number, prompt in enumerate(prompts):
            engine.submit(OpenSequence(number, prompt, GREEDY))
    for number in range(len(prompts)):
        drafter.submit(Propose(number, 3, (), 4, tree=TreeRequest(8, 3)))
    for draft in (event for event in drain(drafter) if isinstance(event, Proposal)):
        target.submit(Verify(draft.sequence_id, 3, draft.draft_token_ids, (), draft.parents))
    verdicts = [event for event in drain(target) if isinstance(event, Verdict)]
    assert len(verdicts) == len(prompts)
    assert sum(len(verdict.token_ids) for verdict in verdicts) / len(verdicts) > 2.2


def test_prompts_are_computed_in_chunks_beside_decodes() -> None:
    engine = core(max_batch_tokens=16, step_cost=PER_ROW)
    engine.submit(OpenSequence(1, PROMPT, GREEDY))
    drain(engine)
    engine.submit(Decode(1, 3, 10))
    engine.submit(OpenSequence(2, (5,) * 40, GREEDY))
    shapes = []
    for _ in range(4):
        engine.step()
        load = engine.load()
        shapes.append((load.num_step_tokens, load.num_sequences_decoding, engine.step_s))
    assert shapes == [(16, 1, 16.0), (16, 1, 16.0), (10, 1, 10.0), (1, 1, 1.0)]


def test_a_full_cache_takes_blocks_from_who_is_idle_for_long_and_computes_them_again() -> None:
    now_ns = 0
    engine = core(kv_cache_tokens=48, clock_ns=lambda: now_ns)
    for sequence_id in (1, 2):
        engine.submit(OpenSequence(sequence_id, (sequence_id,) * 32, GREEDY))
        drain(engine)
    engine.submit(Decode(2, 32, 1))
    assert drain(engine) == []
    now_ns += LONG_IDLE_NS
    assert len(drain(engine)) == 2
    assert engine.load().num_preemptions == 1
    engine.submit(Decode(1, 32, 1))
    verdicts = [event for event in drain(engine) if isinstance(event, Verdict)]
    assert verdicts[0].token_ids == decoded(GREEDY, 1, (1,) * 32)


@pytest.mark.parametrize(("num_accepted", "num_rows"), [(0, 1), (2, 1), (3, 2)])
def test_accepted_drafts_are_not_computed_again(num_accepted: int, num_rows: int) -> None:
    drafter = core(step_cost=PER_ROW)
    drafter.submit(OpenSequence(1, PROMPT, GREEDY))
    drafter.submit(Propose(1, 3, (), 3))
    proposal = drain(drafter)[-1]
    new = (*proposal.draft_token_ids[:num_accepted], 99)
    drafter.submit(Propose(1, 3 + len(new), new, 3))
    drafter.step()
    assert drafter.load().num_step_tokens == num_rows


async def test_a_step_is_waited_for_as_long_as_it_costs() -> None:
    waited = []

    async def sleep(duration_s: float) -> None:
        waited.append(duration_s)

    engine = EmulatedEngine(step_cost=RooflineCost(weights_s=0.0, token_s=0.001), sleep=sleep)
    engine.send([OpenSequence(1, PROMPT, GREEDY), Verify(1, 3, (1, 2, 3))])
    events: list = []
    while len(events) < 2:
        events += await engine.receive()
    assert waited == [0.006], "three tokens of the prompt and three drafts"
    assert engine.load.step_time_ns == 6_000_000
    await engine.close()


async def test_what_comes_in_a_step_that_had_nothing_to_do_is_served() -> None:
    late = [[OpenSequence(1, PROMPT, GREEDY), Decode(1, 3, 1)]]

    async def sleep(duration_s: float) -> None:
        if late:
            engine.send(late.pop())

    engine = EmulatedEngine(sleep=sleep)
    engine.send([CloseSequence(7)])
    async with asyncio.timeout(5):
        opened, verdict = await engine.receive()
    assert (opened, verdict.num_draft_tokens) == (Opened(1, 0), 0)
    await engine.close()


async def test_a_dead_engine_says_so_after_its_last_events() -> None:
    engine = EmulatedEngine()
    engine.send([OpenSequence(1, PROMPT, GREEDY)])
    assert await engine.receive() == [Opened(1, 0)]
    waiting = asyncio.create_task(engine.receive())
    await asyncio.sleep(0)
    engine.die(UnavailableError("gone"))
    with pytest.raises(UnavailableError, match="gone"):
        await waiting
    with pytest.raises(UnavailableError, match="gone"):
        engine.send([])
    await engine.close()
