"""One request's sequence on the target pool: which replica it is on, and when it gives up."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.control.decision import Decision
from orchestrator.control.reasons import Reason
from orchestrator.target import RemoteTarget
from pilotfish.errors import ResourceExhaustedError
from pilotfish.messages import Opened, OpenSequence, SequenceError, Verdict
from pilotfish.types import LoadReport, SamplingParams, SequenceErrorCode

PROMPT = (1, 2, 3)
LONG = SamplingParams(temperature=0, max_tokens=500)
PLAIN = Decision(0, 16, Reason.LOAD)


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of(PROMPT, SamplingParams(temperature=0, max_tokens=20))


@pytest.fixture
def target_of():
    def make(pool, timeout_s: float = 5) -> RemoteTarget:
        return RemoteTarget(pool, acquire_timeout_s=timeout_s, max_run_tokens=64)

    return make


async def run(target: RemoteTarget, sequence: Sequence, num_tokens: int) -> tuple[int, ...]:
    async for verdict in target.decode(sequence, num_tokens):
        sequence.commit(verdict)
    return sequence.output_token_ids


def no_place(event):
    """What a replica's front answers when all its sequences are in use: the engine hears nothing."""
    if isinstance(event, Opened):
        return (SequenceError(event.sequence_id, SequenceErrorCode.RESOURCE_EXHAUSTED, "all are in use"),)
    return ()


async def test_places_that_were_refused_do_not_count_as_attempts(
    memory_pool, memory_link, sequence, target_of, toy_continuation
) -> None:
    link, other, num_refused = memory_link("a"), memory_link("b"), [0]
    # As if the replica reported room before every attempt.
    link.report_full = lambda: None

    def refuse_ten_times_then_break(event):
        if num_refused[0] < 10:
            num_refused[0] += isinstance(event, Opened)
            return no_place(event)
        if isinstance(event, Verdict):
            link.lose()
            return ()
        return (event,)

    link.on_event = refuse_ten_times_then_break
    target = target_of(memory_pool(link, other))
    assert await run(target, sequence, 5) == toy_continuation(PROMPT, 5)
    assert (num_refused, target.num_failovers) == ([10], 1)
    target.close()


async def test_an_answer_that_has_begun_waits_for_a_place_as_long_as_it_takes(
    memory_pool, memory_link, sequence, target_of, toy_continuation
) -> None:
    first, second, num_refused = memory_link("a"), memory_link("b"), [0]
    second.report_full = lambda: None

    def refuse_ten_times(event):
        if num_refused[0] < 10:
            num_refused[0] += isinstance(event, Opened)
            return no_place(event)
        return (event,)

    second.on_event = refuse_ten_times
    target = target_of(memory_pool(first, second), timeout_s=0)
    await run(target, sequence, 2)
    first.lose()
    assert await run(target, sequence, 3) == toy_continuation(PROMPT, 5)
    assert num_refused == [10]
    target.close()


async def test_a_sequence_that_no_replica_can_hold_is_refused_at_once(
    memory_pool, memory_link, sequence, target_of
) -> None:
    link = memory_link("a")
    link.report_full = lambda: None
    link.on_event = no_place
    link.load = LoadReport(num_kv_blocks_total=0)
    target = target_of(memory_pool(link))
    link.load = LoadReport(num_kv_blocks_total=1)
    sequence.commit(Verdict(0, len(PROMPT), 0, 0, (5,)))
    for base_length in range(len(PROMPT) + 1, 16):
        sequence.commit(Verdict(0, base_length, 0, 0, (6,)))
    with pytest.raises(ResourceExhaustedError, match="all are in use"):
        await run(target, sequence, 1)
    assert len([command for command in link.commands if isinstance(command, OpenSequence)]) == 1


async def test_a_run_that_is_extended_leaves_no_more_waiting_than_the_reader_may(
    memory_pool, memory_link, sequence_of, toy_continuation
) -> None:
    sequence, link = sequence_of(PROMPT, LONG), memory_link("a")
    link.decodes_step_by_step = True
    target = RemoteTarget(memory_pool(link), acquire_timeout_s=5, max_run_tokens=16)
    run = target.decode(sequence, 8)
    num_coming = []
    async for verdict in run:
        sequence.commit(verdict)
        num_coming.append(run.num_coming_tokens)
        if run.is_running_out and len(num_coming) < 60:
            run.go_on(PLAIN, Decision(0, 500, Reason.LOAD))
            num_coming.append(run.num_coming_tokens)
    assert max(num_coming) == 16
    assert sequence.output_token_ids == toy_continuation(PROMPT, sequence.num_output_tokens)
    assert sequence.num_output_tokens > 60
    target.close()


async def test_a_run_whose_extension_cannot_be_sent_ends_where_it_would_have(
    memory_pool, memory_link, sequence_of, toy_continuation
) -> None:
    sequence, link = sequence_of(PROMPT, LONG), memory_link("a")
    link.decodes_step_by_step = True
    target = RemoteTarget(memory_pool(link), acquire_timeout_s=5, max_run_tokens=64)
    run, send = target.decode(sequence, 16), link.send

    def refuse(command):
        raise ResourceExhaustedError("the replica does not read")

    async with asyncio.timeout(5):
        async for verdict in run:
            sequence.commit(verdict)
            if run.is_running_out and link.send is not refuse:
                link.send = refuse
                run.go_on(PLAIN, Decision(0, 32, Reason.LOAD))
    link.send = send
    assert sequence.output_token_ids == toy_continuation(PROMPT, 16)
    target.close()


async def test_a_draining_replica_is_kept_while_there_is_no_other(
    memory_pool, memory_link, sequence, target_of, toy_continuation
) -> None:
    link, other = memory_link("a"), memory_link("b")
    pool = memory_pool(link)
    target = target_of(pool)
    await run(target, sequence, 2)
    link.is_draining = True
    await run(target, sequence, 2)
    assert len(link.mailboxes) == 1
    pool.links.append(other)
    assert await run(target, sequence, 2) == toy_continuation(PROMPT, 6)
    assert not link.mailboxes
    assert len(other.mailboxes) == 1
    target.close()
