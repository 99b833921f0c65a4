"""Rounds of a remote drafter that drafts ahead: what is said to the replica, and what is waited for."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens

import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Arrived, Woken
from orchestrator.rounds.draft import NO_DRAFT
from orchestrator.rounds.drafter_clients.branching import Branching
from orchestrator.rounds.drafter_clients.predraft_policy import BLOCK_ROUNDS, PredraftPolicy
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from pilotfish.messages import Event, Predrafted, Proposal, Propose, Verdict
from pilotfish.types import AcceptanceMode, LoadReport, SamplingParams, SparseDistribution, TreeRequest
from tests.support.asked_drafter import AskedDrafter

PROMPT = (1, 2, 3)
K = 3


@pytest.fixture
def link(memory_link):
    return memory_link("draft-a")


@pytest.fixture
def policy() -> PredraftPolicy:
    return PredraftPolicy("on", 12)


def counted(policy: PredraftPolicy) -> tuple[int, int, int, int, int]:
    counters = policy.counters
    rounds = counters.num_hits, counters.num_misses, counters.num_late_hits
    return *rounds, counters.num_prepared_tokens, counters.num_wasted_tokens


@pytest.fixture
async def drafter(memory_pool, link, policy) -> AskedDrafter:
    return drafter_on(memory_pool(link), policy)


def drafter_on(pool, policy: PredraftPolicy, **options) -> AskedDrafter:
    return AskedDrafter(lambda out: RemoteDrafter(pool, lambda num_tokens: 5.0, out, predraft=policy, **options))


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of()


def commit(sequence: Sequence, *token_ids: int) -> None:
    for token_id in token_ids:
        sequence.commit(Verdict(1, sequence.length, 0, 0, (token_id,)))


def prepared(base_length: int, assumed: tuple[int, ...], draft: tuple[int, ...], probs=()) -> Predrafted:
    return Predrafted(1, base_length, assumed[:-1], (len(assumed) - 1,), assumed[-1:], draft, probs)


def pushes(link, continuation, *, bonus: int | None = None) -> Callable[[Event], Tokens[Event]]:
    """A replica that foresees one outcome: all accepted, and `bonus` (else the true token) after them."""

    def after(event: Event) -> Tokens[Event]:
        command = link.commands[-1]
        if not isinstance(event, Proposal) or not isinstance(command, Propose) or command.ahead is None:
            return (event,)
        text = tuple(link.tokens[1])
        assumed = continuation(text, command.num_draft_tokens + 1)
        if bonus is not None:
            assumed = (*assumed[:-1], bonus)
        ahead = prepared(event.base_length, assumed, continuation((*text, *assumed), K))
        return (ahead,) if command.is_prepared else (event, ahead)

    return after


async def test_a_hit_waits_for_nothing_and_is_told(drafter, link, policy, sequence, toy_continuation) -> None:
    link.on_event = pushes(link, toy_continuation)
    first = await drafter.propose(sequence, K)
    await drafter.read(sequence)
    committed = toy_continuation(PROMPT, K + 1)
    commit(sequence, *committed)
    proposing = drafter.propose(sequence, K)
    with pytest.raises(StopIteration) as end:
        proposing.send(None)
    second = end.value.value
    assert (*first.token_ids, committed[-1]) == committed
    assert second.token_ids == toy_continuation((*PROMPT, *committed), K)
    assert second.elapsed_s == 0
    told = link.commands[-1]
    assert (told.base_length, told.new_token_ids, told.num_draft_tokens) == (3 + K + 1, committed, K)
    assert told.is_prepared
    assert told.ahead is not None
    # All were accepted, which is more than is believed before the first round.
    assert 0.7 < min(told.ahead.acceptance) <= max(told.ahead.acceptance) < 1
    assert counted(policy) == (1, 0, 0, K, 0)
    assert policy.counters.hidden_s > 0


async def test_a_round_that_drafts_ahead_has_a_chain_and_another_the_tree_at_its_price(
    memory_pool, link, sequence
) -> None:
    priced = Branching(TreeRequest(8, 2), lambda _, max_nodes: max_nodes / 80)
    await drafter_on(memory_pool(link), PredraftPolicy("on", 12), branching=priced).propose(sequence, K)
    asked = link.commands[-1]
    assert (asked.tree, asked.ahead.max_tokens) == (None, 12)
    await drafter_on(memory_pool(link), PredraftPolicy("off", 12), branching=priced).propose(sequence, K)
    asked = link.commands[-1]
    assert (asked.tree, asked.ahead) == (TreeRequest(8, 2, 0.1), None)


async def test_rounds_that_verify_what_another_way_prepared_teach_nothing(
    memory_pool, link, sequence, toy_continuation, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, taught = PredraftPolicy("auto", 12), []
    monkeypatch.setattr(policy, "add_round", lambda _elapsed_s, num_tokens, **_way: taught.append(num_tokens))
    drafter = drafter_on(memory_pool(link), policy)
    for _ in range(2 * BLOCK_ROUNDS):
        await drafter.propose(sequence, K)
        commit(sequence, *toy_continuation(sequence.tokens_since(0), K + 1))
    await drafter.propose(sequence, K)
    assert taught == [K + 1] * 2 * (BLOCK_ROUNDS - 1)


async def test_rounds_go_the_faster_way(memory_pool, link, sequence) -> None:
    policy = PredraftPolicy("auto", 12)
    for _ in range(100):
        policy.add_round(0.012, 3, is_ahead=True)
        policy.add_round(0.010, 3, is_ahead=False)
    await drafter_on(memory_pool(link), policy).propose(sequence, K)
    assert link.commands[-1].ahead is None


async def test_tokens_that_came_between_two_rounds_teach_no_acceptance(
    drafter, sequence, link, toy_continuation
) -> None:
    await drafter.propose(sequence, K)
    before = link.commands[-1].ahead.acceptance
    commit(sequence, *toy_continuation(PROMPT, K + 2))
    await drafter.propose(sequence, K)
    assert link.commands[-1].ahead.acceptance == before
    commit(sequence, *toy_continuation(sequence.tokens_since(0), K + 1))
    await drafter.propose(sequence, K)
    assert min(link.commands[-1].ahead.acceptance) > max(before)


async def test_a_round_has_gone_on_only_with_a_predraft(drafter, link, policy, sequence, toy_continuation) -> None:
    link.on_event = pushes(link, toy_continuation)
    await drafter.propose(sequence, K)
    await drafter.read(sequence)
    commit(sequence, *toy_continuation(PROMPT, K + 1))
    expected = toy_continuation(sequence.tokens_since(0), K)
    assert drafter.drafter.handed_on(sequence, 0, 0.0).token_ids == expected
    assert policy.counters.num_gone_on == 1
    commit(sequence, *toy_continuation(sequence.tokens_since(0), K + 1))
    assert drafter.drafter.handed_on(sequence, 0, 0.0) == NO_DRAFT
    assert policy.counters.num_gone_on == 1


def test_a_missed_draft_counts_among_what_asking_takes(memory_pool, link, policy, sequence) -> None:
    drafter = RemoteDrafter(memory_pool(link), lambda num_tokens: 0.5, [], predraft=policy)
    drafter.ask(sequence, K, 0.0)
    assert drafter.peer is not None
    drafter.hear(Arrived(drafter.peer, Proposal(1, 3, (4, 5)), 0.1, LoadReport()), sequence, 0.1)
    assert policy.ask_s == 0.1
    drafter.ask(sequence, K, 1.0)
    drafter.hear(Woken(1.5, "deadline"), sequence, 1.5)
    assert policy.ask_s > 0.1


@pytest.fixture
def four_rounds(
    memory_pool, link, sequence, toy_continuation, monkeypatch: pytest.MonkeyPatch
) -> tuple[RemoteDrafter, list[float]]:
    """A drafter that has drafted every 2 s, 0.25 s after it was asked and in time until 0.75 s, and what is recorded of
    the rounds' times."""
    policy, lasted = PredraftPolicy("auto", 12), list[float]()
    monkeypatch.setattr(policy, "add_round", lambda elapsed_s, _num_tokens, **_way: lasted.append(elapsed_s))
    drafter = RemoteDrafter(memory_pool(link), lambda num_tokens: 0.75, [], predraft=policy)
    for now_s in (0.0, 2.0, 4.0, 6.0):
        drafter.ask(sequence, K, now_s)
        assert drafter.peer is not None
        proposal = Proposal(1, sequence.length, toy_continuation(sequence.tokens_since(0), K))
        assert drafter.hear(Arrived(drafter.peer, proposal, now_s + 0.25, LoadReport()), sequence, now_s + 0.25)
        commit(sequence, *toy_continuation(sequence.tokens_since(0), K + 1))
    return drafter, lasted


def test_a_round_lasts_from_one_draft_to_the_next(four_rounds) -> None:
    _, lasted = four_rounds
    assert set(lasted) == {2.0}


def test_a_draft_that_never_comes_makes_the_round_before_it_longer(four_rounds, sequence) -> None:
    """Else `auto` could not see that drafting ahead makes drafts late."""
    drafter, lasted = four_rounds
    drafter.ask(sequence, K, 8.0)
    assert drafter.hear(Woken(8.75, "deadline"), sequence, 8.75)
    assert lasted[-2:] == [2.0, 2.5]


async def test_a_predraft_is_cut_to_what_the_round_wants(drafter, link, sequence, toy_continuation) -> None:
    link.on_event = pushes(link, toy_continuation)
    await drafter.propose(sequence, K)
    await drafter.read(sequence)
    commit(sequence, *toy_continuation(PROMPT, K + 1))
    draft = await drafter.propose(sequence, 1)
    assert draft.token_ids == toy_continuation(sequence.tokens_since(0), 1)
    assert link.commands[-1].is_prepared


async def test_on_a_miss_it_asks(drafter, link, policy, sequence, toy_continuation) -> None:
    link.on_event = pushes(link, toy_continuation, bonus=49)
    await drafter.propose(sequence, K)
    await drafter.read(sequence)
    commit(sequence, *toy_continuation(PROMPT, K + 1))
    draft = await drafter.propose(sequence, K)
    assert draft.token_ids == toy_continuation(sequence.tokens_since(0), K)
    assert not link.commands[-1].is_prepared
    assert counted(policy) == (0, 1, 0, K, K)


async def test_a_push_that_comes_after_its_round_is_wasted(drafter, link, policy, sequence, toy_continuation) -> None:
    push = prepared(2, (3,), (5, 6))
    link.on_event = lambda event: (event, push) if isinstance(event, Proposal) else (event,)
    await drafter.propose(sequence, K)
    await drafter.read(sequence)
    commit(sequence, *toy_continuation(PROMPT, K + 1))
    await drafter.propose(sequence, K)
    assert (policy.counters.num_stale_drafts, *counted(policy)) == (1, 0, 1, 0, 2, 2)


async def test_a_push_that_crosses_the_question_answers_it(drafter, link, policy, sequence, toy_continuation) -> None:
    held: list[Event] = []
    ahead = pushes(link, toy_continuation)

    def hold(event: Event) -> Tokens[Event]:
        answer, *rest = ahead(event)
        if not held:
            held.extend(rest)
            return (answer,)
        return (held[0],)  # the real answer never comes

    link.on_event = hold
    await drafter.propose(sequence, K)
    commit(sequence, *toy_continuation(PROMPT, K + 1))
    draft = await drafter.propose(sequence, K)
    assert draft.token_ids == toy_continuation(sequence.tokens_since(0), K)
    assert counted(policy) == (0, 1, 1, K, 0)


async def test_prepared_distributions_come_along(memory_pool, link, policy, sequence_of, toy_continuation) -> None:
    sequence = sequence_of(PROMPT, SamplingParams(acceptance=AcceptanceMode.REJECTION))
    committed = toy_continuation(PROMPT, K + 1)
    probs = (SparseDistribution((5, 6), (0.75, 0.25)),)
    ahead = prepared(3, committed, (5,), probs)
    one_hot = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in committed[:K])
    link.on_event = lambda event: (
        (Proposal(1, 3, committed[:K], one_hot), ahead) if isinstance(event, Proposal) else (event,)
    )
    drafter = drafter_on(memory_pool(link), policy, needs_probs=True)
    await drafter.propose(sequence, K)
    await drafter.read(sequence)
    commit(sequence, *committed)
    draft = await drafter.propose(sequence, K)
    assert (draft.token_ids, draft.probs) == ((5,), probs)
