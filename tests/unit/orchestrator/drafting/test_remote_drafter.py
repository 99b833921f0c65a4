"""What is said to a draft replica, round by round, and what is made of its answers."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.feature_feed import FeatureFeed
from orchestrator.drafting.remote_drafter import RemoteDrafter
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import CloseSequence, OpenSequence, Proposal, Propose, SequenceError, Verdict
from pilotfish.types import (
    AcceptanceMode,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    TreeRequest,
)

PROMPT = (1, 2, 3)


@pytest.fixture
def link(memory_link):
    return memory_link("draft-a")


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of()


def drafter_on(pool_type, *links, deadline_s=5.0, tree=None) -> RemoteDrafter:
    return RemoteDrafter(pool_type(*links), lambda num_tokens: deadline_s, tree=tree)


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
    draft = await drafter_on(memory_pool, link, tree=TreeRequest(30, 3)).propose(sequence, 2)
    assert link.commands[-1].tree == TreeRequest(link.limits.max_draft_tokens, 3)
    assert draft.parents == (-1, -1, 1, 1)


@pytest.mark.parametrize(
    ("token_ids", "parents", "message"),
    [
        ((1, 2), (-1,), "2 draft tokens came with 1 parents"),
        ((1, 2), (-1, 1), "must come before it"),
        ((1, 2, 3), (-1, 0, 1), "3 draft tokens of depth 3 came where 4 of depth 2"),
        ((1, 2, 3, 4, 5), (-1,) * 5, "5 draft tokens of depth 1 came where 4 of depth 2"),
    ],
)
async def test_what_is_no_tree_is_held_against_the_replica(
    memory_pool, link, sequence, token_ids, parents, message
) -> None:
    link.on_event = lambda event: (Proposal(1, 3, token_ids, parents=parents),)
    draft = await drafter_on(memory_pool, link, tree=TreeRequest(4, 2)).propose(sequence, 2)
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
    late = RemoteDrafter(memory_pool(link), lambda num_tokens: next(deadlines))
    assert (await late.propose(sequence, 2)).problem == "a proposal missed its deadline"
    assert late.num_missed_deadlines == 1
    commit(sequence, 7)
    stale = SequenceError(1, SequenceErrorCode.STALE, "the item stands on 3 tokens", 3)
    link.on_event = lambda event: (*held, stale, event)
    assert (await late.propose(sequence, 2)).token_ids == toy_continuation((*PROMPT, 7), 2)


async def test_the_first_miss_after_opening_is_not_held_against_the_replica(memory_pool, link, sequence) -> None:
    link.on_event = lambda event: ()
    drafter = drafter_on(memory_pool, link, deadline_s=0.001)
    await drafter.propose(sequence, 2)
    assert link.failures == []
    await drafter.propose(sequence, 2)
    assert link.failures == ["a proposal missed its deadline"]


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
    block = await drafter_on(memory_pool, link).propose(sequence, 2)
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


def fed_drafter(pool_type, feed, *links) -> RemoteDrafter:
    return RemoteDrafter(pool_type(*links), lambda num_tokens: 5.0, feed)


async def test_features_are_asked_for_and_each_is_sent_once(memory_pool, head_link, sequence) -> None:
    feed = FeatureFeed(HEAD_LAYERS)
    drafter = fed_drafter(memory_pool, feed, head_link)
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
