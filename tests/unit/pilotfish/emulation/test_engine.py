"""The emulated engine keeps the promises of the real one."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.errors import UnavailableError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.types import AcceptanceMode, FinishReason, Limits, ModelInfo, SamplingParams, SequenceErrorCode

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


def test_greedy_text_depends_on_the_context_alone_and_sampled_text_on_the_seed() -> None:
    assert decoded(GREEDY, 20) == decoded(SamplingParams(temperature=0, seed=9, max_tokens=1000), 20)
    assert decoded(GREEDY, 20) != decoded(GREEDY, 20, (9, 9, 9))
    seeds = {decoded(SamplingParams(seed=seed, max_tokens=1000), 20) for seed in range(5)}
    assert len(seeds) == 5


def test_a_restart_from_committed_tokens_goes_on_as_before() -> None:
    whole = decoded(SamplingParams(seed=3, max_tokens=1000), 20)
    target = core()
    target.submit(OpenSequence(1, PROMPT, SamplingParams(seed=3, max_tokens=1000), whole[:8]))
    target.submit(Decode(1, len(PROMPT) + 8, 12))
    assert tuple(event.token_ids[0] for event in drain(target) if isinstance(event, Verdict)) == whole[8:]


def test_decode_is_a_verdict_per_step() -> None:
    target = core()
    target.submit(OpenSequence(1, PROMPT, GREEDY))
    target.submit(Decode(1, 3, 3))
    events = drain(target)
    assert events[0] == Opened(1, 0)
    assert [(event.base_length, len(event.token_ids)) for event in events[1:]] == [(3, 1), (4, 1), (5, 1)]


def test_runs_can_be_chained_before_they_end() -> None:
    target = core()
    target.submit(OpenSequence(1, PROMPT, GREEDY))
    target.submit(Decode(1, 3, 4))
    events = target.step() + target.step()
    target.submit(Decode(1, 7, 2))
    assert isinstance(target.step()[0], SequenceError), "a run that begins ahead of the committed tokens is stale"
    target.submit(Decode(1, 5, 6))
    events = drain(target)
    assert events[-1].base_length == 10
    assert not target.has_work


def run_with_draft(num_steps: int, draft: tuple[int, ...]) -> list:
    """A run of 20 tokens into which a draft on its beginning comes after num_steps steps."""
    target = core()
    target.submit(OpenSequence(1, PROMPT, GREEDY))
    target.submit(Decode(1, len(PROMPT), 20))
    verdicts = [event for _ in range(num_steps) for event in target.step() if isinstance(event, Verdict)]
    target.submit(Verify(1, len(PROMPT), draft))
    return [*verdicts, *drain(target)]


def test_a_draft_ends_a_run_that_it_foresaw() -> None:
    text = decoded(GREEDY, 7)
    verdicts = run_with_draft(2, text[:6])
    assert [verdict.num_draft_tokens for verdict in verdicts] == [0, 0, 4]
    assert tuple(token_id for verdict in verdicts for token_id in verdict.token_ids) == text


@pytest.mark.parametrize("is_wrong", [True, False])
def test_a_draft_that_comes_to_nothing_does_not_disturb_a_run(is_wrong: bool) -> None:
    text = decoded(GREEDY, 20)
    draft = ((text[0] + 1) % 256, *text[1:6]) if is_wrong else text[:2]
    verdicts = run_with_draft(2, draft)
    assert tuple(verdict.token_ids[0] for verdict in verdicts) == text


def test_max_tokens_cuts_a_round() -> None:
    target, text = core(), decoded(GREEDY, 5)
    target.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, max_tokens=2)))
    target.submit(Verify(1, 3, text[:4]))
    verdict = drain(target)[-1]
    assert verdict.token_ids == text[:2]
    assert verdict.num_draft_tokens == verdict.num_accepted_tokens == 1, (
        "as in the real engine, others are not looked at"
    )
    assert verdict.finish_reason is FinishReason.LENGTH
    assert target.num_sequences == 0


def test_a_stop_token_ends_a_run_and_is_kept() -> None:
    text = decoded(GREEDY, 5)
    target = core()
    target.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, stop_token_ids=(text[2],))))
    target.submit(Decode(1, 3, 50))
    events = drain(target)
    assert [event.token_ids[0] for event in events[1:]] == list(text[:3])
    assert events[-1].finish_reason is FinishReason.STOP


def test_the_context_is_an_end_too() -> None:
    target = core(max_context_tokens=5)
    target.submit(OpenSequence(1, PROMPT, GREEDY))
    target.submit(Decode(1, 3, 50))
    assert drain(target)[-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (Verify(1, 2, (1,)), SequenceErrorCode.STALE),
        (Verify(2, 3, (1,)), SequenceErrorCode.UNKNOWN_SEQUENCE),
        (Decode(1, 4, 1), SequenceErrorCode.STALE),
        (Decode(2, 3, 1), SequenceErrorCode.UNKNOWN_SEQUENCE),
        (Propose(2, 3, (), 1), SequenceErrorCode.UNKNOWN_SEQUENCE),
        (Propose(1, 9, (1,), 1), SequenceErrorCode.UNKNOWN_SEQUENCE),
    ],
)
def test_commands_that_do_not_fit(command: Verify | Decode | Propose, code: SequenceErrorCode) -> None:
    engine = core()
    engine.submit(OpenSequence(1, PROMPT, GREEDY))
    drain(engine)
    engine.submit(command)
    (error,) = drain(engine)
    assert isinstance(error, SequenceError)
    assert (error.code, error.base_length) == (code, command.base_length)


def test_a_drafter_rewinds_by_statement() -> None:
    drafter = core(acceptance=1.0)
    drafter.submit(OpenSequence(1, PROMPT, GREEDY))
    drafter.submit(Propose(1, 5, (50, 60), 3))
    drafter.submit(Propose(1, 4, (70,), 3))
    assert drain(drafter)[-1].draft_token_ids == decoded(GREEDY, 3, (*PROMPT, 70))


def test_rejection_mode_brings_distributions() -> None:
    drafter = core()
    drafter.submit(OpenSequence(1, PROMPT, SamplingParams(acceptance=AcceptanceMode.REJECTION)))
    drafter.submit(Propose(1, 3, (), 4))
    proposal = drain(drafter)[-1]
    assert [probs.token_ids for probs in proposal.draft_probs] == [(token_id,) for token_id in proposal.draft_token_ids]


def test_blocks_and_slots_are_counted() -> None:
    engine = core()
    for sequence_id in range(1, 6):
        engine.submit(OpenSequence(sequence_id, (sequence_id,) * 17, GREEDY))
    events = drain(engine)
    errors = [event for event in events if isinstance(event, SequenceError)]
    assert [error.code for error in errors] == [SequenceErrorCode.RESOURCE_EXHAUSTED]
    assert engine.load().num_kv_blocks_used == 4
    assert engine.load().num_sequences_running == 4
    for sequence_id in range(1, 6):
        engine.submit(CloseSequence(sequence_id))
    assert engine.load().num_kv_blocks_used == engine.num_sequences == 0


async def test_a_target_tells_what_its_steps_cost_and_a_drafter_does_not() -> None:
    target, drafter = EmulatedEngine("target", step_cost=PER_ROW), EmulatedEngine("draft", step_cost=PER_ROW)
    assert [target.load.step_table.step_s(rows) for rows in (1, 8, 32)] == [1.0, 8.0, 32.0]
    assert drafter.load.step_table.step_s(1) == 0.0
    await target.close()
    await drafter.close()


def test_an_equal_prefix_is_not_computed_twice() -> None:
    engine = core()
    engine.submit(OpenSequence(1, (1,) * 40, GREEDY))
    drain(engine)
    engine.submit(OpenSequence(2, (1,) * 40, GREEDY))
    assert drain(engine) == [Opened(2, 32)]
    assert engine.load().num_step_tokens == 7


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


def test_a_full_cache_takes_blocks_from_who_is_idle_and_computes_them_again() -> None:
    engine = core(kv_cache_tokens=48)
    for sequence_id in (1, 2):
        engine.submit(OpenSequence(sequence_id, (sequence_id,) * 32, GREEDY))
        drain(engine)
    assert engine.load().num_preemptions == 1
    engine.submit(Decode(1, 32, 1))
    verdicts = [event for event in drain(engine) if isinstance(event, Verdict)]
    assert verdicts[0].token_ids == decoded(GREEDY, 1, (1,) * 32)


def test_a_proposal_takes_a_step_for_each_token_batched_over_the_sequences() -> None:
    drafter = core(step_cost=PER_ROW)
    for sequence_id in (1, 2):
        drafter.submit(OpenSequence(sequence_id, PROMPT, GREEDY))
    drain(drafter)
    for sequence_id in (1, 2):
        drafter.submit(Propose(sequence_id, 3, (), 3))
    steps = []
    while drafter.has_work:
        steps.append((len(drafter.step()), drafter.step_s, drafter.load().num_sequences_decoding))
    assert steps == [(0, 2.0, 2), (0, 2.0, 2), (2, 2.0, 2)]


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


def test_a_drafter_that_was_left_behind_catches_up_first() -> None:
    drafter = core(step_cost=PER_ROW)
    drafter.submit(OpenSequence(1, PROMPT, GREEDY))
    drain(drafter)
    drafter.submit(Propose(1, 23, tuple(range(20)), 1))
    drafter.step()
    assert drafter.load().num_step_tokens == 21


def test_the_seed_of_acceptance_changes_what_is_accepted_and_not_the_text() -> None:
    model = HashLanguageModel(acceptance_seed=7)
    contexts = [[1, 2, 3, place] for place in range(200)]

    def right(language_model: HashLanguageModel) -> list[bool]:
        return [
            language_model.draft_token(context, GREEDY, 0.5) == language_model.next_token(context, GREEDY)
            for context in contexts
        ]

    assert right(model) != right(LANGUAGE_MODEL)
    assert [model.next_token(c, GREEDY) for c in contexts] == [LANGUAGE_MODEL.next_token(c, GREEDY) for c in contexts]


def test_acceptance_is_independent_where_greedy_text_runs_in_circles() -> None:
    circle = HashLanguageModel(vocab_size=2)
    context = [0, 1] * 3
    right = []
    for _ in range(2000):
        truth = circle.next_token(context, GREEDY)
        right.append(circle.draft_token(context, GREEDY, 0.5) == truth)
        context.append(truth)
    assert sum(right) / len(right) == pytest.approx(0.5, abs=0.05)


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


async def test_what_comes_during_a_step_waits_for_the_next() -> None:
    waited = []
    gate = asyncio.Event()

    async def sleep(duration_s: float) -> None:
        waited.append(duration_s)
        await gate.wait()

    engine = EmulatedEngine(step_cost=RooflineCost(weights_s=0.0, token_s=0.001), sleep=sleep)
    engine.send([OpenSequence(1, PROMPT, GREEDY), Decode(1, 3, 1)])
    await asyncio.sleep(0)
    assert waited == [0.003]
    engine.send([OpenSequence(2, (7, 8), GREEDY), Decode(2, 2, 1)])
    gate.set()
    events: list = []
    while len(events) < 4:
        events += await engine.receive()
    assert [(type(event), event.sequence_id) for event in events] == [
        (Opened, 1),
        (Verdict, 1),
        (Opened, 2),
        (Verdict, 2),
    ]
    assert waited == [0.003, 0.002]
    await engine.close()


class DelayFor(BatchingDelay):
    """Waits once until so many drafts are here, whatever is usual."""

    def __init__(self, num_drafts: int, longest_ns: int = 10**15) -> None:
        super().__init__(StepCosts(), max_batch_tokens=64)
        self.num_missing = num_drafts
        self._longest_ns = longest_ns

    def took(self, commands: Iterable[Command], arrived_ns: int) -> None:
        self.num_missing -= sum(isinstance(command, Verify) for command in commands)

    def wait_ns(self, now_ns: int) -> int:
        longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns if self.num_missing > 0 else 0


async def test_a_step_waits_for_those_that_come_back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmulatedEngine("target")
    delay = DelayFor(2)
    monkeypatch.setattr(engine, "_delay", delay)
    engine.send([OpenSequence(1, PROMPT, GREEDY), OpenSequence(2, (7, 8), GREEDY), Verify(1, 3, (1,))])
    for _ in range(10):
        await asyncio.sleep(0)
    engine.send([Verify(2, 2, (1,))])
    # A wait that its arrival does not end takes days.
    events = await asyncio.wait_for(engine.receive(), timeout=10)
    assert [event.sequence_id for event in events if isinstance(event, Verdict)] == [1, 2], "in one step"
    await engine.close()


async def test_a_step_takes_as_many_rows_as_the_delay_says(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmulatedEngine("target")
    delay = DelayFor(2)
    monkeypatch.setattr(delay, "max_rows", lambda now_ns: 4)  # of a prompt and its draft
    monkeypatch.setattr(engine, "_delay", delay)
    engine.send([OpenSequence(1, PROMPT, GREEDY), OpenSequence(2, PROMPT, GREEDY)])
    for _ in range(4):
        await asyncio.sleep(0)
    engine.send([Verify(1, 3, (1,)), Verify(2, 3, (1,))])
    steps = []
    while len(steps) < 2:
        events = await asyncio.wait_for(engine.receive(), timeout=10)
        steps += [[event.sequence_id for event in events if isinstance(event, Verdict)]]
    assert steps == [[1], [2]]
    await engine.close()


async def test_a_wait_that_brings_nothing_ends_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmulatedEngine("target")
    delay = DelayFor(2, longest_ns=1000)
    monkeypatch.setattr(engine, "_delay", delay)
    engine.send([OpenSequence(1, PROMPT, GREEDY), Verify(1, 3, (1,))])
    events = await asyncio.wait_for(engine.receive(), timeout=10)
    assert [event.sequence_id for event in events if isinstance(event, Verdict)] == [1]
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


async def test_what_was_closed_during_the_last_step_of_a_closed_engine_is_closed() -> None:
    engine = EmulatedEngine("target", step_time_s=3600)
    engine.send([OpenSequence(1, PROMPT, GREEDY), OpenSequence(2, PROMPT, GREEDY), Decode(1, 3, 8)])
    for _ in range(4):
        await asyncio.sleep(0)
    engine.send([CloseSequence(1)])
    await engine.close()
    assert engine.num_sequences == 1, "the second was never closed"
