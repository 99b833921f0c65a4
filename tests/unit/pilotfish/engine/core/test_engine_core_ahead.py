"""Drafting ahead in a real engine: what is prepared is what would be drafted when asked, and nothing is lost by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import (
    CloseSequence,
    Event,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    SequenceError,
)
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution
from tests.support.engine_events import MakeCore, settle

VOCAB, K = 64, 3
TEXT = (5, 9, 33, 2, 17)
AHEAD = PredraftRequest(30, (0.6,))
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, max_tokens=100),
    "coupled": SamplingParams(temperature=1.5, seed=11, max_tokens=100),
    "rejection": SamplingParams(temperature=1.5, seed=11, acceptance=AcceptanceMode.REJECTION, max_tokens=100),
    "penalties": SamplingParams(
        temperature=0.9, seed=3, repetition_penalty=1.5, presence_penalty=1.0, frequency_penalty=0.5, max_tokens=100
    ),
}


class Prepared(NamedTuple):
    """One draft that was made ahead."""

    sequence_id: int
    base_length: int
    """Of the Propose that it is ahead of."""
    assumed_token_ids: tuple[int, ...]
    draft_token_ids: tuple[int, ...]
    draft_probs: tuple[SparseDistribution, ...]

    @classmethod
    def all_of(cls, event: Predrafted) -> list[Prepared]:
        drafts = [(outcome, event.draft(outcome)) for outcome in event.outcomes]
        return [
            cls(event.sequence_id, event.base_length, outcome, draft.draft_token_ids, draft.draft_probs)
            for outcome, draft in drafts
            if draft is not None and draft.base_length == event.base_length + len(outcome)
        ]


@pytest.fixture
def asked(make_core: MakeCore) -> Callable[..., Proposal]:
    """What a fresh engine proposes."""

    def propose(text: tuple[int, ...], sampling: SamplingParams, k: int = K) -> Proposal:
        core = make_core()
        core.submit(OpenSequence(1, TEXT, sampling, text[len(TEXT) :]))
        core.submit(Propose(1, len(text), (), k))
        (proposal,) = [event for event in settle(core) if isinstance(event, Proposal)]
        return proposal

    return propose


def proposals_of(events: list[Event]) -> list[Proposal]:
    """The answers to what was asked."""
    assert not [event for event in events if isinstance(event, SequenceError)]
    return [event for event in events if isinstance(event, Proposal)]


def prepared_of(events: list[Event]) -> list[Prepared]:
    return [draft for event in events if isinstance(event, Predrafted) for draft in Prepared.all_of(event)]


def same_draft(one: Proposal | Prepared, other: Proposal) -> bool:
    same_probs = [a.token_ids for a in one.draft_probs] == [b.token_ids for b in other.draft_probs] and all(
        a.probs == pytest.approx(b.probs, abs=1e-4) for a, b in zip(one.draft_probs, other.draft_probs, strict=True)
    )
    return one.draft_token_ids == other.draft_token_ids and same_probs


@pytest.mark.parametrize("name", SAMPLINGS)
def test_what_is_prepared_is_what_would_be_proposed(make_core, asked, name) -> None:
    core, sampling = make_core(), SAMPLINGS[name]
    core.submit(OpenSequence(1, TEXT, sampling))
    core.submit(Propose(1, len(TEXT), (), K, ahead=AHEAD))
    events = settle(core)
    (proposal,), prepared = proposals_of(events), prepared_of(events)
    assert len(prepared) == 10
    assert same_draft(proposal, asked(TEXT, sampling))
    assert len({draft.assumed_token_ids for draft in prepared}) == 10
    for draft in prepared:
        num_accepted = len(draft.assumed_token_ids) - 1
        assert draft.assumed_token_ids[:-1] == proposal.draft_token_ids[:num_accepted]
        assert same_draft(draft, asked((*TEXT, *draft.assumed_token_ids), sampling))


def test_the_likeliest_bonus_is_the_drafters_own_next_token(make_core, asked) -> None:
    core, sampling = make_core(), SAMPLINGS["greedy"]
    core.submit(OpenSequence(1, TEXT, sampling))
    core.submit(Propose(1, len(TEXT), (), K, ahead=PredraftRequest(K, (1.0,))))
    events = settle(core)
    (proposal,), (prepared,) = proposals_of(events), prepared_of(events)
    longer = asked(TEXT, sampling, K + 1)
    assert prepared.assumed_token_ids == longer.draft_token_ids
    assert prepared.assumed_token_ids[:-1] == proposal.draft_token_ids


@pytest.mark.parametrize("name", SAMPLINGS)
def test_rounds_of_hits_and_misses_are_as_if_all_were_asked_for(make_core, asked, name) -> None:
    generator, sampling = random.Random(5), SAMPLINGS[name]
    core, text, num_hits = make_core(), TEXT, 0
    core.submit(OpenSequence(1, TEXT, sampling))
    core.submit(Propose(1, len(text), (), K, ahead=AHEAD))
    events = settle(core)
    (proposal,), prepared = proposals_of(events), prepared_of(events)
    for _ in range(5):
        hit = generator.choice(prepared) if generator.random() < 0.7 else None
        if hit is None:
            new = (*proposal.draft_token_ids[: generator.randrange(K + 1)], generator.randrange(VOCAB))
            hit = next((draft for draft in prepared if draft.assumed_token_ids == new), None)
        else:
            new = hit.assumed_token_ids
        text, num_hits = (*text, *new), num_hits + (hit is not None)
        core.submit(Propose(1, len(text), new, K, ahead=AHEAD, is_prepared=hit is not None))
        events = settle(core)
        assert len(proposals_of(events)) == (hit is None)
        proposal, prepared = hit if hit is not None else proposals_of(events)[0], prepared_of(events)
        assert all(draft.base_length == len(text) for draft in prepared)
        assert same_draft(proposal, asked(text, sampling))
        for draft in prepared[::4]:
            assert same_draft(draft, asked((*text, *draft.assumed_token_ids), sampling))
    assert 0 < num_hits < 5


def test_asked_for_what_it_has_prepared_it_answers_without_a_step(make_core) -> None:
    core = make_core()
    core.submit(OpenSequence(1, TEXT, SAMPLINGS["coupled"]))
    core.submit(Propose(1, len(TEXT), (), K, ahead=AHEAD))
    prepared = prepared_of(settle(core))
    new = prepared[2].assumed_token_ids
    core.submit(Propose(1, len(TEXT) + len(new), new, K))
    (answer,) = proposals_of(core.step())
    assert answer.draft_token_ids == prepared[2].draft_token_ids
    assert not core.has_work


@pytest.mark.parametrize("row_ns", [0, 1e8])
def test_a_proposal_waits_for_drafting_ahead_only_where_rows_cost_nothing(row_ns: float, make_core) -> None:
    """They share steps then, as on a GPU; else it waits for no more than the step in flight."""
    core = make_core()
    core.begin_with(StepCosts((1, 64), (1e8, 1e8 + 63 * row_ns)))
    core.submit(OpenSequence(1, TEXT, SAMPLINGS["greedy"]))
    core.submit(Propose(1, len(TEXT), (), K, ahead=AHEAD))
    for _ in range(K + 2):
        core.step()
    assert core.has_work
    core.submit(OpenSequence(2, TEXT, SAMPLINGS["greedy"]))
    core.submit(Propose(2, len(TEXT), (), 2))
    assert [proposal.sequence_id for _ in range(2) for proposal in proposals_of(core.step())] == [2]
    num_left = K - (0 if row_ns else 2)
    assert {draft.sequence_id for _ in range(num_left) for draft in prepared_of(core.step())} == {1}


def test_a_sequence_moves_on_in_the_middle_of_drafting_ahead(make_core, asked) -> None:
    sampling = SAMPLINGS["greedy"]
    for num_steps in range(K, 2 * K + 2):
        core = make_core()
        core.submit(OpenSequence(1, TEXT, sampling))
        core.submit(Propose(1, len(TEXT), (), K, ahead=AHEAD))
        events = [event for _ in range(num_steps) for event in core.step()]
        new = (*proposals_of(events)[0].draft_token_ids[:2], 40)
        core.submit(Propose(1, len(TEXT) + 3, new, K))
        (answer,) = proposals_of(settle(core))
        assert same_draft(answer, asked((*TEXT, *new), sampling))


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_draft_that_is_half_made_is_gone_on_with(make_core, asked, name) -> None:
    sampling = SAMPLINGS[name]
    whole = make_core()
    whole.submit(OpenSequence(1, TEXT, sampling))
    whole.submit(Propose(1, len(TEXT), (), K, ahead=AHEAD))
    new = prepared_of(settle(whole))[1].assumed_token_ids
    core = make_core()
    core.submit(OpenSequence(1, TEXT, sampling))
    core.submit(Propose(1, len(TEXT), (), K, ahead=AHEAD))
    for _ in range(K + 1 + 2):  # two of three drafts of each branch
        core.step()
    core.submit(Propose(1, len(TEXT) + len(new), new, K, ahead=AHEAD))
    (answer,) = proposals_of(core.step())
    assert same_draft(answer, asked((*TEXT, *new), sampling))
    for draft in prepared_of(settle(core))[::3]:
        assert same_draft(draft, asked((*TEXT, *new, *draft.assumed_token_ids), sampling))


def test_told_of_a_hit_that_it_does_not_know_it_drafts_in_silence(make_core) -> None:
    core = make_core()
    core.submit(OpenSequence(1, TEXT, SAMPLINGS["greedy"]))
    core.submit(Propose(1, len(TEXT) + 1, (8,), K, ahead=AHEAD, is_prepared=True))
    events = settle(core)
    assert proposals_of(events) == []
    assert len(prepared_of(events)) == 10


@pytest.mark.parametrize(
    ("prompt", "changes", "max_tokens"),
    [
        (tuple(range(61)) * 2, {}, 30),  # near the end of the context
        ((*TEXT, *range(15)), {"kv_cache_tokens": 32}, 60),  # a full cache
        (TEXT, {"max_batch_tokens": 9}, 30),  # in no step there is room for so many rows
    ],
    ids=["context", "cache", "step"],
)
def test_where_there_is_no_room_nothing_is_drafted_ahead_and_nothing_else_is_lost(
    make_core, prompt, changes, max_tokens
) -> None:
    core = make_core(**changes)
    core.submit(OpenSequence(1, prompt, SAMPLINGS["greedy"]))
    core.submit(Propose(1, len(prompt), (), K, ahead=PredraftRequest(max_tokens, (0.6,))))
    events = settle(core)
    assert [len(proposal.draft_token_ids) for proposal in proposals_of(events)] == [K]
    assert prepared_of(events) == []
    core.submit(CloseSequence(1))
    assert core.kv_cache.pool.num_used == 0


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), kv_cache_tokens=st.sampled_from((64, 160, 512)))
def test_any_neighbours_in_any_cache(make_core, asked, seed: int, kv_cache_tokens: int) -> None:
    """Sequences that come at any step, and end: every answer is right, and no block stays behind."""
    generator, sampling = random.Random(seed), SAMPLINGS["greedy"]
    core = make_core(kv_cache_tokens=kv_cache_tokens, max_batch_tokens=generator.choice((9, 20, 48)))
    texts: dict[int, tuple[int, ...]] = {}
    awaited: set[tuple[int, int]] = set()
    known: dict[int, int] = {}
    for sequence_id in range(1, 4):
        texts[sequence_id] = TEXT
        known[sequence_id] = len(TEXT)
        core.submit(OpenSequence(sequence_id, TEXT, sampling))
    prepared: list[Prepared] = []
    for _ in range(15):
        sequence_id = generator.choice(list(texts))
        if not any(waiting == sequence_id for waiting, _ in awaited):
            text = (*texts[sequence_id], *(generator.randrange(VOCAB) for _ in range(generator.randint(0, 2))))
            drafts = [draft for draft in prepared if draft.sequence_id == sequence_id]
            if drafts and generator.random() < 0.6 and drafts[-1].base_length == len(texts[sequence_id]):
                last = generator.choice(drafts[-3:])
                text = (*texts[sequence_id], *last.assumed_token_ids, *last.draft_token_ids[:1])
            new, texts[sequence_id] = text[known[sequence_id] :], text
            known[sequence_id] = len(text)
            core.submit(Propose(sequence_id, len(text), new, K, ahead=AHEAD))
            awaited.add((sequence_id, len(text)))
        for _ in range(generator.randint(0, 4)):
            events = core.step()
            prepared += prepared_of(events)
            for answer in proposals_of(events):
                awaited.discard((answer.sequence_id, answer.base_length))
                assert same_draft(answer, asked(texts[answer.sequence_id], sampling))
    for sequence_id in texts:
        core.submit(CloseSequence(sequence_id))
    settle(core)
    assert core.kv_cache.pool.num_used == 0
