"""Rounds that the target begins by itself, with drafts made ahead that it was handed."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec.structs import replace

from orchestrator.control.decision import Decision, RoundResult
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.round_log import RoundLog
from orchestrator.session import Session
from pilotfish.messages import Event, Predrafted, Verdict, Verify
from tests.support.toy_model import VOCAB_SIZE, continuation
from tests.unit.orchestrator.session.conftest import PROMPT, World


@pytest.fixture
def session(world: World) -> Session:
    return make_session(world)


def make_session(world: World, **options) -> Session:
    world.draft_a.drafts_ahead = True
    # Drafts are made in no time: only a machine that stands still for so long has them come too late.
    world.target_a.step_s = world.target_b.step_s = 0.03
    return world.session(predraft=PredraftPolicy("on", 48), **options)


def verifications(world: World) -> list[Verify]:
    return [command for command in world.target_a.commands if isinstance(command, Verify)]


async def test_rounds_need_no_command(world: World) -> None:
    log = RoundLog(100)
    session = make_session(world, log=log)
    assert await world.tokens(session) == continuation(PROMPT, 40)
    # 1 token, then 8 rounds of 5: the target begins all but the first by itself.
    assert session.speculation_stats.num_rounds == 8
    assert len(verifications(world)) == 1
    assert [record.num_tokens for record in log.records if record.is_verification] == [5] * 7 + [4]
    world.assert_nothing_is_left()


async def test_a_replica_that_cannot_is_asked_for_each_round(world: World, session: Session) -> None:
    world.target_a.limits = type(world.target_a.limits)(max_draft_tokens=8, max_sequences=64)
    assert await world.tokens(session) == continuation(PROMPT, 40)
    assert not world.target_a.prepared
    assert len(verifications(world)) == session.speculation_stats.num_rounds == 8


async def test_the_replica_is_lost_while_it_goes_on(world: World, session: Session) -> None:
    world.targets.links.append(world.target_b)

    def lose_after(event: Event) -> list[Event]:
        if not (isinstance(event, Verdict) and event.num_next_draft_tokens and event.base_length > 20):
            return [event]
        world.target_a.on_event = lambda event: []
        asyncio.get_running_loop().call_later(0.01, world.target_a.lose)
        return [event]

    world.target_a.on_event = lose_after
    assert await world.tokens(session) == continuation(PROMPT, 40)
    assert session.target.num_failovers == 1
    world.target_a.mailboxes.clear()
    world.assert_nothing_is_left()


async def test_the_drafter_is_lost_while_the_target_goes_on(world: World, session: Session) -> None:
    def lose_drafter(event: Event) -> list[Event]:
        if isinstance(event, Verdict) and event.num_next_draft_tokens and world.draft_a.is_connected:
            world.draft_a.lose()
        return [event]

    world.target_a.on_event = lose_drafter
    assert await world.tokens(session) == continuation(PROMPT, 40)
    assert not world.target_a.mailboxes


@pytest.mark.parametrize("fault", ["a token that does not exist", "too many", "of another round"])
async def test_what_a_target_must_never_see_is_not_handed_on(world: World, session: Session, fault: str) -> None:
    def spoil(event: Event) -> list[Event]:
        if not isinstance(event, Predrafted):
            return [event]
        base = event.base_length + (fault == "of another round")
        drafts = {"a token that does not exist": (VOCAB_SIZE,), "too many": (1,) * 9}.get(fault, (1,))
        return [replace(event, base_length=base, draft_token_ids=drafts)]

    world.draft_a.on_event = spoil
    assert await world.tokens(session) == continuation(PROMPT, 40)
    assert not world.target_a.prepared
    assert bool(world.draft_a.failures) == (fault == "a token that does not exist")


async def test_nothing_is_handed_on_into_a_plain_run(world: World, session: Session) -> None:
    """The proposal comes too late for its round, what is drafted ahead of it comes in time."""
    world.deadline_s = 0.0
    world.draft_a.on_event = lambda event: [event] if isinstance(event, Predrafted) else []
    assert await world.tokens(session) == continuation(PROMPT, 40)
    assert not world.target_a.prepared
    assert not verifications(world)


async def test_a_stop_ends_what_goes_on(world: World) -> None:
    expected = continuation(PROMPT, 40)
    stop = world.tokenizer.bytes_by_token(skip_special=False)[expected[7]].decode()
    session = make_session(world, stop=(stop,))
    tokens = await world.tokens(session)
    assert tokens == expected[: len(tokens)]
    assert session.sequence.stopped_by == stop
    world.assert_nothing_is_left()


@pytest.mark.parametrize("k", [0, 2])
async def test_the_controller_is_heeded_after_the_round_under_way(world: World, session: Session, k: int) -> None:
    decide = world.machine.controller.decide
    lengths: list[int] = []

    def decided(result) -> Decision:
        decision = decide(result)
        return dataclasses.replace(decision, num_draft_tokens=k) if result.num_output_tokens > 10 else decision

    def noted(event: Event) -> list[Event]:
        if isinstance(event, Verdict) and event.base_length >= len(PROMPT) + 11:
            lengths.append(event.num_draft_tokens)
        return [event]

    world.machine.controller.decide = decided  # type: ignore[method-assign]
    world.target_a.on_event = noted
    assert await world.tokens(session) == continuation(PROMPT, 40)
    # The round that the target had begun when the decision fell, and none beyond it.
    assert [length for length in lengths if length > k] == [4]
    world.assert_nothing_is_left()


async def test_the_controller_hears_of_every_round(world: World, session: Session) -> None:
    results: list[RoundResult] = []
    controller = world.machine.controller
    decide = controller.decide

    def heard(result: RoundResult) -> Decision:
        results.append(result)
        return decide(result)

    controller.decide, controller.end = heard, results.append  # type: ignore[method-assign]
    await world.collect(session)
    assert sum(result.num_committed_tokens for result in results) == 40
    drafted = [result for result in results if result.num_draft_tokens]
    assert len(drafted) == 8
    assert all(result.num_requested_tokens == 4 and 0 < result.target_s < 5 for result in drafted)
