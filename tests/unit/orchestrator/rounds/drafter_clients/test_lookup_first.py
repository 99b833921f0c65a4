from __future__ import annotations

import pytest

from orchestrator.rounds.commands import Command, Send, Wake, Woken
from orchestrator.rounds.drafter_clients.lookup_budget import LookupBudget
from orchestrator.rounds.drafter_clients.lookup_drafter import LookupDrafter
from orchestrator.rounds.drafter_clients.lookup_first import LookupFirst
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from pilotfish.config import DraftConfig
from pilotfish.messages import Propose, Verdict
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution, TreeRequest
from tests.support.asked_drafter import AskedDrafter

COPIED = (1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4)
DOUBTFUL = (1, 2, 3, 9, 1)
TWO_WAYS = (1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 7, 8, 10, 1, 2, 3, 4)


@pytest.fixture
def first(memory_pool, memory_link):
    """Makes one over a replica, or over none, and the replica."""

    def make(has_replica=True, predraft=None, budget=10**6, max_tokens=6, tree=None):
        link = memory_link("draft")
        link.drafts_ahead = predraft is not None

        def drafter(out: list[Command]) -> LookupFirst:
            lookup = SequenceLookup(lookup_of("suffix")(DraftConfig())(""), 1)
            pool = memory_pool(link) if has_replica else memory_pool()
            return LookupFirst(
                "suffix",
                LookupDrafter(lookup, LookupBudget(budget), out, tree=tree),
                RemoteDrafter(pool, lambda _: 5.0, out, predraft=predraft),
                min_accepted_tokens=1.0,
                max_tokens=max_tokens,
            )

        return AskedDrafter(drafter), link

    return make


def questions(link) -> list[Propose]:
    return [command for command in link.commands if isinstance(command, Propose)]


def commit(sequence, *token_ids: int) -> None:
    sequence.commit(Verdict(1, sequence.length, 0, 0, token_ids))


async def test_a_sure_lookup_drafts_as_far_as_it_likes_and_asks_nobody(first, sequence_of) -> None:
    drafter, link = first()
    draft = await drafter.propose(sequence_of(COPIED), 2)
    assert draft.token_ids == (5, 6, 7, 8, 1, 2)
    assert draft.spared_drafter
    assert not link.commands
    bound, _ = first(max_tokens=0)
    assert (await bound.propose(sequence_of(COPIED), 2)).token_ids == (5, 6), "no more than the drafter"


async def test_a_sure_lookup_branches_but_for_what_cuts_into_a_run(first, sequence_of) -> None:
    drafter, _ = first(tree=TreeRequest(8, 2))
    draft = await drafter.propose(sequence_of(TWO_WAYS), 2)
    assert draft.spared_drafter
    assert {5, 7} == {token_id for token_id, parent in zip(draft.token_ids, draft.parents, strict=True) if parent < 0}
    assert drafter.drafter.glance(sequence_of(TWO_WAYS), 2).parents == ()


async def test_a_doubtful_lookup_leaves_the_round_to_the_drafter(first, sequence_of, toy_continuation) -> None:
    drafter, _ = first()
    draft = await drafter.propose(sequence_of(DOUBTFUL), 2)
    assert draft.token_ids == toy_continuation(DOUBTFUL, 2)
    assert not draft.spared_drafter


async def test_the_drafter_gets_the_tokens_of_the_rounds_that_it_was_spared(first, sequence_of) -> None:
    drafter, link = first()
    sequence = sequence_of(DOUBTFUL)
    await drafter.propose(sequence, 2)
    commit(sequence, 2, 3)
    assert (await drafter.propose(sequence, 2)).spared_drafter
    commit(sequence, 9, 1)
    assert (await drafter.propose(sequence, 2)).spared_drafter
    commit(sequence, 40)
    await drafter.propose(sequence, 2)
    assert [question.new_token_ids for question in questions(link)] == [(), (2, 3, 9, 1, 40)]


async def test_no_more_is_drafted_than_the_answer_may_have(first, sequence_of) -> None:
    drafter, _ = first()
    sequence = sequence_of(COPIED, SamplingParams(temperature=0, max_tokens=3))
    assert (await drafter.propose(sequence, 2)).token_ids == (5, 6)


async def test_in_rejection_mode_all_probability_is_on_the_looked_up_token(first, sequence_of) -> None:
    drafter, _ = first()
    sampling = SamplingParams(temperature=1, acceptance=AcceptanceMode.REJECTION)
    draft = await drafter.propose(sequence_of(COPIED, sampling), 2)
    assert draft.probs == tuple(SparseDistribution((token_id,), (1.0,)) for token_id in draft.token_ids)


async def test_without_the_replica_the_lookup_drafts_alone(first, sequence_of) -> None:
    drafter, _ = first(has_replica=False)
    assert drafter.unavailable_reason == ""
    assert drafter.drafter.stand_in == "suffix"
    for prompt in (COPIED, DOUBTFUL):
        draft = await drafter.propose(sequence_of(prompt), 2)
        assert len(draft.token_ids) == 2
        assert not draft.spared_drafter
        drafter, _ = first(has_replica=False)
    assert drafter.drafter.glance(sequence_of(COPIED), 2).token_ids == (5, 6)


async def test_without_room_for_the_lookup_the_drafter_is_asked(first, sequence_of, toy_continuation) -> None:
    drafter, _ = first(budget=5)
    draft = await drafter.propose(sequence_of(COPIED), 2)
    assert draft.token_ids == toy_continuation(COPIED, 2)
    assert (drafter.unavailable_reason, drafter.drafter.stand_in) == ("", "")
    drafter.close()
    alone, _ = first(budget=5, has_replica=False)
    await alone.propose(sequence_of(COPIED), 2)
    assert alone.unavailable_reason == "there is no replica"


@pytest.mark.parametrize("is_handed_on", [False, True])
async def test_a_predraft_that_fits_is_verified_and_none_follows_it_while_the_lookup_is_sure(
    first, sequence_of, toy_continuation, is_handed_on
) -> None:
    policy = PredraftPolicy("on", 48)
    drafter, link = first(predraft=policy, max_tokens=0)
    answer = toy_continuation((2, 3), 20)
    sequence = sequence_of((2, 3, *answer, 49, 2, 3))
    draft = await drafter.propose(sequence, 2)
    assert not draft.spared_drafter, "two tokens of context promise too little"
    await drafter.read(sequence)  # the predraft
    commit(sequence, *answer[:3])
    if is_handed_on:
        hit = drafter.drafter.handed_on(sequence, 2, 0.0)
        drafter.flush()
    else:
        hit = await drafter.propose(sequence, 2)
    assert (hit.token_ids, hit.spared_drafter) == (answer[3:5], False)
    assert (policy.counters.num_hits, policy.counters.num_gone_on) == (1, int(is_handed_on))
    commit(sequence, *answer[3:6])
    copied = await drafter.propose(sequence, 2)
    assert (copied.token_ids, copied.spared_drafter) == (answer[6:8], True)
    assert len(questions(link)) == 1
    assert policy.counters.num_wasted_tokens == policy.counters.num_misses == 0


async def test_a_predraft_that_does_not_fit_is_missed_once(first, sequence_of) -> None:
    policy = PredraftPolicy("on", 48)
    drafter, link = first(predraft=policy, max_tokens=0)
    sequence = sequence_of((*range(10, 20), 1, 10))
    assert not (await drafter.propose(sequence, 2)).spared_drafter
    await drafter.read(sequence)
    for token_ids in ((11, 12, 13), (14,)):
        commit(sequence, *token_ids)
        assert (await drafter.propose(sequence, 2)).spared_drafter
    assert len(questions(link)) == 1
    assert (policy.counters.num_hits, policy.counters.num_misses) == (0, 1)


async def test_an_answer_that_has_ended_serves_the_lookups_of_others_and_frees_what_it_took(
    memory_pool, sequence_of
) -> None:
    make_index, budget = lookup_of("suffix")(DraftConfig()), LookupBudget(100)

    def drafter(out: list[Command]) -> LookupFirst:
        lookup = LookupDrafter(SequenceLookup(make_index(""), 3), budget, out)
        remote = RemoteDrafter(memory_pool(), lambda _: 5.0, out)
        return LookupFirst("suffix", lookup, remote, min_accepted_tokens=1.0)

    ended, sequence = AskedDrafter(drafter), sequence_of((1, 2, 3))
    commit(sequence, *range(10, 20))
    await ended.propose(sequence, 2)
    assert budget.num_tokens == 13
    ended.close()
    assert budget.num_tokens == 0
    assert (await AskedDrafter(drafter).propose(sequence_of((5, 11, 12)), 2)).token_ids == (13, 14)


def read(client: LookupFirst, out: list[Command], sequence) -> None:
    """Have the lookup woken as long as it wants to be."""
    while Wake in map(type, out):
        wakes = {command.alarm: command.at_s for command in out if isinstance(command, Wake)}
        out.clear()
        if "reading" in wakes:
            assert client.hear(Woken(wakes["reading"], "reading"), sequence, 1.0) is None


async def test_a_long_prompt_is_read_while_the_drafter_is_waited_for(first, sequence_of) -> None:
    prompt = (*range(10, 2000), 1, 2, 3, 4, 5, 6, 1, 2, 3, 4)
    sequence, (drafter, _) = sequence_of(prompt), first()
    client, out = drafter.drafter, drafter._out
    client.prepare(sequence, 0.0)
    assert client.ask(sequence, 2, 0.0) is None, "the lookup has not read it"
    assert Wake(5.0, "deadline") in out
    read(client, out, sequence)
    late = client.hear(Woken(5.0, "deadline"), sequence, 5.0)
    assert late is not None
    assert late.problem
    draft = client.ask(sequence, 2, 5.0)
    assert draft is not None
    assert draft.token_ids[:2] == (5, 6)
    assert not any(isinstance(command, Send) for command in out)


async def test_beside_a_drafter_that_is_never_asked_a_long_prompt_is_read_all_the_same(first, sequence_of) -> None:
    sequence, (drafter, link) = sequence_of((*range(10, 2000), *COPIED)), first()
    client, out = drafter.drafter, drafter._out
    assert not client.glance(sequence, 0).token_ids, "the lookup has not read it"
    read(client, out, sequence)
    assert client.glance(sequence, 0).token_ids == (5, 6, 7, 8, 1, 2)
    assert not link.commands
