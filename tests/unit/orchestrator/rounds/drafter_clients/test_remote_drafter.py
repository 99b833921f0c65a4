"""What is said to a draft replica, round by round, and what is made of its answers."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Arrived, Command, Report, Woken
from orchestrator.rounds.drafter_clients.branching import Branching
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import CloseSequence, OpenSequence, Proposal, Propose, SequenceError, Verdict
from pilotfish.types import (
    AcceptanceMode,
    LoadReport,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    Timings,
    TreeRequest,
)
from tests.support.asked_drafter import AskedDrafter

PROMPT = (1, 2, 3)


@pytest.fixture
def link(memory_link):
    return memory_link("draft-a")


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of()


def drafter_on(pool_type, *links, deadline_s=5.0, **options) -> AskedDrafter:
    return AskedDrafter(lambda out: RemoteDrafter(pool_type(*links), lambda num_tokens: deadline_s, out, **options))


def commit(sequence: Sequence, *token_ids: int) -> None:
    for token_id in token_ids:
        sequence.commit(Verdict(1, sequence.length, 0, 0, (token_id,)))


async def test_each_round_states_only_what_is_new(memory_pool, link, sequence, toy_continuation) -> None:
    drafter = drafter_on(memory_pool, link)
    commit(sequence, 7)
    first = await drafter.propose(sequence, 2)
    commit(sequence, 8, 9)
    second = await drafter.propose(sequence, 3)
    opened, *proposes = link.commands
    assert isinstance(opened, OpenSequence)
    assert (opened.prompt_token_ids, opened.output_token_ids) == (PROMPT, (7,))
    assert proposes == [Propose(1, 4, (), 2), Propose(1, 6, (8, 9), 3)]
    assert first.token_ids == toy_continuation((*PROMPT, 7), 2)
    assert second.token_ids == toy_continuation((*PROMPT, 7, 8, 9), 3)
    drafter.close()
    drafter.close()
    assert link.commands[-1] == CloseSequence(1)
    assert not link.mailboxes


async def test_a_tree_is_asked_for_within_the_replicas_limits(memory_pool, link, sequence) -> None:
    draft = await drafter_on(memory_pool, link, branching=Branching(TreeRequest(30, 3))).propose(sequence, 2)
    assert link.commands[-1].tree == TreeRequest(link.limits.max_draft_tokens, 3)
    assert draft.parents == (-1, -1, 1, 1)


@pytest.mark.parametrize(
    ("token_ids", "parents", "message"),
    [
        ((1, 2), (-1,), "2 draft tokens with 1 parents"),
        ((1, 2), (-1, 1), "must come before it"),
        ((1, 2, 3), (-1, 0, 1), "3 draft tokens of depth 3 came where 4 of depth 2"),
        ((1, 2, 3, 4, 5), (-1,) * 5, "5 draft tokens of depth 1 came where 4 of depth 2"),
    ],
)
async def test_what_is_no_tree_is_held_against_the_replica(
    memory_pool, link, sequence, token_ids, parents, message
) -> None:
    link.on_event = lambda event: (Proposal(1, 3, token_ids, parents=parents),)
    draft = await drafter_on(memory_pool, link, branching=Branching(TreeRequest(4, 2))).propose(sequence, 2)
    assert draft.token_ids == ()
    assert message in draft.problem
    assert len(link.failures) == 1


async def test_a_forgotten_sequence_is_opened_again_with_everything(memory_pool, link, sequence) -> None:
    drafter = drafter_on(memory_pool, link)
    await drafter.propose(sequence, 2)
    link.tokens.clear()
    commit(sequence, 7)
    block = await drafter.propose(sequence, 2)
    assert block.problem == ""
    assert len(block.token_ids) == 2
    reopened = [command for command in link.commands if isinstance(command, OpenSequence)][-1]
    assert (reopened.prompt_token_ids, reopened.output_token_ids) == (PROMPT, (7,))


async def test_a_late_proposal_is_not_taken_for_the_next_one(memory_pool, link, sequence, toy_continuation) -> None:
    held: list = []
    link.on_event = lambda event: held.append(event) or ()
    deadlines = iter([0.001, 5.0])
    late = AskedDrafter(lambda out: RemoteDrafter(memory_pool(link), lambda num_tokens: next(deadlines), out))
    assert (await late.propose(sequence, 2)).problem == "a proposal missed its deadline"
    assert late.drafter.num_missed_deadlines == 1
    commit(sequence, 7)
    stale = SequenceError(1, SequenceErrorCode.STALE, "the item stands on 3 tokens", 3)
    link.on_event = lambda event: (*held, stale, event)
    assert (await late.propose(sequence, 2)).token_ids == toy_continuation((*PROMPT, 7), 2)


async def test_only_misses_after_the_first_answer_are_held_against_the_replica(memory_pool, link, sequence) -> None:
    """Until then it may have a long prompt to read."""
    drafter = drafter_on(memory_pool, link, deadline_s=0.001)
    silent, link.on_event = (lambda event: ()), (lambda event: ())
    for _ in range(3):
        await drafter.propose(sequence, 2)
    assert link.failures == []
    link.on_event = lambda event: (event,)
    assert (await drafter.propose(sequence, 2)).token_ids
    link.on_event = silent
    await drafter.propose(sequence, 2)
    assert link.failures == ["a proposal missed its deadline"]


def test_a_replica_that_never_answers_is_held_to_it_in_the_end(memory_pool, link, sequence) -> None:
    out: list[Command] = []
    drafter = RemoteDrafter(memory_pool(link), lambda num_tokens: 1.0, out)
    for now_s in (0.0, 5.0, 12.0):
        assert drafter.ask(sequence, 2, now_s) is None
        assert drafter.hear(Woken(now_s + 1.0, "deadline"), sequence, now_s + 1.0).problem
    assert [command.service for command in out if isinstance(command, Report)] == ["failure"]


async def test_a_replica_whose_circuit_is_open_is_not_asked(memory_pool, link, sequence) -> None:
    drafter = drafter_on(memory_pool, link)
    await drafter.propose(sequence, 2)
    link.is_circuit_open = True
    num_commands = len(link.commands)
    assert drafter.unavailable_reason == "there is no replica"
    assert (await drafter.propose(sequence, 2)).problem == "there is no replica"
    assert [type(command) for command in link.commands[num_commands:]] == [CloseSequence]


GOOD = SparseDistribution((4, 5, 0), (0.5, 0.25, 0.25))


async def test_a_replica_without_a_free_place_is_no_failing_replica(memory_pool, memory_link, sequence) -> None:
    """Its circuit must not open: it would take the drafter away from those who have a place."""
    full, free = memory_link("full"), memory_link("free")
    code = SequenceErrorCode.RESOURCE_EXHAUSTED
    full.on_event = lambda event: (SequenceError(event.sequence_id, code, "all are in use", sequence.length),)
    drafter = drafter_on(memory_pool, full, free)
    refused = await drafter.propose(sequence, 2)
    assert "all are in use" in refused.problem
    assert full.is_full
    assert full.failures == []
    assert not full.mailboxes
    assert len((await drafter.propose(sequence, 2)).token_ids) == 2
    drafter.close()


@pytest.mark.parametrize(
    ("probs", "is_taken"),
    [
        ((GOOD, GOOD), True),
        ((GOOD,), False),
        ((), False),
        ((GOOD, SparseDistribution((4,), (1.0,))), False),  # token 5 was not drawn from it
        ((GOOD, SparseDistribution((4, 5), (0.5, 0.6))), False),
        ((GOOD, SparseDistribution((4, 5), (1.5, -0.5))), False),
        ((GOOD, SparseDistribution((5, 5), (0.5, 0.5))), False),
        ((GOOD, SparseDistribution((5, 99), (0.5, 0.5))), False),
        ((GOOD, SparseDistribution((5,), (float("nan"),))), False),
    ],
)
async def test_in_rejection_mode_only_sound_distributions_are_taken(
    memory_pool, link, sequence_of, probs, is_taken
) -> None:
    sequence = sequence_of(PROMPT, SamplingParams(temperature=1, acceptance=AcceptanceMode.REJECTION))
    link.on_event = lambda event: (
        (Proposal(event.sequence_id, event.base_length, (4, 5), probs),) if isinstance(event, Proposal) else (event,)
    )
    block = await drafter_on(memory_pool, link, needs_probs=True).propose(sequence, 2)
    assert (block.token_ids == (4, 5)) == is_taken
    assert bool(block.problem) != is_taken
    assert len(link.failures) == (not is_taken)


HEAD_LAYERS = (2, 15, 27)


@pytest.fixture
def head_link(memory_link):
    """A replica whose proposer builds on the target's features."""
    link = memory_link("head-a")
    link.model = msgspec.structs.replace(link.model, proposer="eagle3", feature_layers=HEAD_LAYERS)
    return link


def features_at(first: int, num_tokens: int) -> Features:
    return Features(first, num_tokens, bytes(range(first, first + num_tokens)))


async def test_features_are_asked_for_and_each_is_sent_once(memory_pool, head_link, sequence) -> None:
    feed = FeatureFeed(HEAD_LAYERS)
    drafter = drafter_on(memory_pool, head_link, features=feed)
    commit(sequence, 7)
    block = await drafter.propose(sequence, 2)
    assert (block.token_ids, block.problem, block.is_deferred) == ((), "", True)
    assert [type(command) for command in head_link.commands] == [OpenSequence]
    assert feed.request(head_link.model, sequence.length) == FeatureRequest(0)
    feed.add(features_at(0, 3))
    commit(sequence, 8)
    assert (await drafter.propose(sequence, 2)).token_ids
    feed.add(features_at(3, 2))
    commit(sequence, 9, 9)
    assert (await drafter.propose(sequence, 2)).token_ids
    proposes = [command for command in head_link.commands if isinstance(command, Propose)]
    assert [propose.features for propose in proposes] == [features_at(0, 3), features_at(3, 2)]


async def test_a_prepared_drafter_reads_the_prompt_before_the_first_round(memory_pool, link, sequence) -> None:
    drafter = drafter_on(memory_pool, link)
    drafter.prepare(sequence)
    assert [type(command) for command in link.commands] == [OpenSequence]
    commit(sequence, 7)
    await drafter.propose(sequence, 2)
    assert link.commands[1:] == [Propose(1, 4, (7,), 2)]


async def test_no_more_is_asked_than_the_replica_drafts(memory_pool, link, sequence) -> None:
    await drafter_on(memory_pool, link).propose(sequence, 100)
    assert link.commands[-1].num_draft_tokens == link.limits.max_draft_tokens
    link.model = msgspec.structs.replace(link.model, max_draft_depth=2)
    await drafter_on(memory_pool, link).propose(sequence, 100)
    assert link.commands[-1].num_draft_tokens == 2


async def test_a_replica_that_forgets_again_and_again_is_given_up(memory_pool, link, sequence) -> None:
    code = SequenceErrorCode.UNKNOWN_SEQUENCE
    link.on_event = lambda event: (SequenceError(event.sequence_id, code, "unknown", sequence.length),)
    draft = await drafter_on(memory_pool, link).propose(sequence, 2)
    assert draft.problem == "the draft replica forgets the sequence again and again"
    assert link.failures == [draft.problem]
    assert len([command for command in link.commands if isinstance(command, OpenSequence)]) == 2


async def test_what_a_draft_took_is_told(memory_pool, link, sequence) -> None:
    timings = Timings(compute_time_ns=4_000_000)
    link.on_event = lambda event: (
        (msgspec.structs.replace(event, timings=timings),) if isinstance(event, Proposal) else (event,)
    )
    draft = await drafter_on(memory_pool, link).propose(sequence, 2)
    assert draft.compute_s == 0.004
    assert 0 < draft.elapsed_s < 5


def test_a_missed_draft_says_how_long_it_was_waited_for(memory_pool, link, sequence) -> None:
    drafter = RemoteDrafter(memory_pool(link), lambda num_tokens: 0.5, [])
    assert drafter.ask(sequence, 2, 3.0) is None
    assert drafter.hear(Woken(3.4, "deadline"), sequence, 3.4) is None  # an earlier round's
    missed = drafter.hear(Woken(3.5, "deadline"), sequence, 3.75)
    assert missed is not None
    assert missed.elapsed_s == 0.5
    assert drafter.hear(Woken(3.5, "deadline"), sequence, 4.0) is None


async def test_a_draft_that_was_taken_back_is_drafted_anew(memory_pool, link, sequence, toy_continuation) -> None:
    drafter = drafter_on(memory_pool, link)
    longer = sequence.with_tokens((7, 8))
    await drafter.propose(longer, 2)
    drafter.rewind(sequence.length)
    commit(sequence, 9)
    assert (await drafter.propose(sequence, 2)).token_ids == toy_continuation((*PROMPT, 9), 2)
    assert link.commands[-1].new_token_ids == (9,)


def test_what_the_session_waits_for_elsewhere_is_not_the_drafters_time(memory_pool, link, sequence) -> None:
    """Such as for a client that does not read."""
    out: list[Command] = []
    drafter = RemoteDrafter(memory_pool(link), lambda num_tokens: 0.5, out)
    assert drafter.ask(sequence, 2, 3.0) is None
    assert drafter.peer is not None
    answer = Arrived(drafter.peer, Proposal(1, 3, (4, 5)), 3.25, LoadReport())
    draft = drafter.hear(answer, sequence, 30.0)
    assert draft is not None
    assert draft.elapsed_s == 0.25
    commit(sequence, 4)
    assert drafter.ask(sequence, 2, 30.0) is None
    missed = drafter.hear(Woken(30.5, "deadline"), sequence, 60.0)
    assert missed is not None
    assert missed.elapsed_s == 0.5
