"""Whatever happens to the replicas, the client gets the target's own tokens or a clear error."""

from __future__ import annotations

import pytest

from pilotfish.errors import InternalError, InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import OpenSequence, Proposal, SequenceError, Verdict
from pilotfish.types import SequenceErrorCode
from tests.support.until import until

PROMPT = (1, 2, 3)


async def test_a_silent_drafter_costs_its_rounds_only(world, toy_continuation) -> None:
    world.draft_a.on_event = lambda event: ()
    world.deadline_s = 0.001
    session = world.session(max_tokens=8)
    assert await world.tokens(session) == toy_continuation(PROMPT, 8)
    # The first token is decoded without, then ever longer runs follow: 1, 2 and the last 4.
    assert session.drafter.num_missed_deadlines == 3
    assert world.draft_a.failures == []  # it may have much to read before it
    world.assert_nothing_is_left()


def _garbage(event):
    return (Proposal(event.sequence_id, event.base_length, (3, 10**6)),) if isinstance(event, Proposal) else (event,)


def _too_many(event):
    return (Proposal(event.sequence_id, event.base_length, (1,) * 9),) if isinstance(event, Proposal) else (event,)


def _stale(event):
    if isinstance(event, Proposal):
        return (Proposal(event.sequence_id, event.base_length - 1, (9, 9)), event)
    return (event,)


@pytest.mark.parametrize("fault", [_garbage, _too_many, _stale])
async def test_whatever_a_drafter_answers_the_text_is_the_targets(world, toy_continuation, fault) -> None:
    world.draft_a.on_event = fault
    session = world.session()
    assert await world.tokens(session) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


@pytest.mark.parametrize("code", list(SequenceErrorCode))
async def test_no_error_of_a_drafter_fails_a_request(world, toy_continuation, sequence_error, code) -> None:
    world.draft_a.on_event = sequence_error(code)
    assert await world.tokens(world.session()) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


@pytest.mark.parametrize("code", [code for code in SequenceErrorCode if code is not SequenceErrorCode.INVALID])
async def test_a_target_that_refuses_is_left_for_another(world, toy_continuation, sequence_error, code) -> None:
    world.targets.links.append(world.target_b)
    world.target_a.on_event = sequence_error(code)
    assert await world.tokens(world.session()) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("code", "error", "num_attempts"),
    [
        (SequenceErrorCode.INVALID, InvalidRequestError, 1),
        (SequenceErrorCode.RESOURCE_EXHAUSTED, ResourceExhaustedError, 1),
        (SequenceErrorCode.INTERNAL, InternalError, 4),
        (SequenceErrorCode.UNAVAILABLE, UnavailableError, 1),
        (SequenceErrorCode.UNKNOWN_SEQUENCE, UnavailableError, 4),
    ],
)
async def test_with_nowhere_else_to_go_the_targets_error_reaches_the_caller(
    world, sequence_error, code, error, num_attempts
) -> None:
    world.target_a.on_event = sequence_error(code)
    with pytest.raises(error):
        await world.collect(world.session())
    assert sum(isinstance(command, OpenSequence) for command in world.target_a.commands) == num_attempts
    world.assert_nothing_is_left()


async def test_a_refused_draft_is_dropped_and_its_round_decoded_plainly(world, toy_continuation) -> None:
    def refuse_drafts(event):
        if isinstance(event, Verdict) and event.num_draft_tokens:
            sequence_id = event.sequence_id
            del world.target_a.tokens[sequence_id][event.base_length :]
            return (SequenceError(sequence_id, SequenceErrorCode.INVALID, "no drafts, please"),)
        return (event,)

    world.target_a.on_event = refuse_drafts
    assert await world.tokens(world.session(max_tokens=9)) == toy_continuation(PROMPT, 9)
    assert len([command for command in world.target_a.commands if isinstance(command, OpenSequence)]) == 1


async def test_a_fault_of_our_own_ends_the_answer_and_frees_everything(world) -> None:
    session = world.session()

    def fail() -> None:
        raise RuntimeError("a fault of our own")

    world.machine.controller.close = fail
    with pytest.raises(RuntimeError, match="a fault of our own"):
        await world.collect(session)
    assert not world.target_a.mailboxes
    assert not world.draft_a.mailboxes


async def test_a_client_that_leaves_waits_for_no_answer(world) -> None:
    world.target_a.on_event = lambda event: ()
    session = world.session()
    async with session.running():
        await until(lambda: world.target_a.tokens)
    world.assert_nothing_is_left()
