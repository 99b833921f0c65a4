"""A mailbox on a replica in memory."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator import remote_sequence
from orchestrator.remote_sequence import RemoteSequence
from pilotfish.errors import DeadlineExceededError, InternalError, UnavailableError
from pilotfish.messages import Opened


@pytest.fixture
async def sequence(memory_link) -> RemoteSequence:
    return RemoteSequence(memory_link("a"), max_events=2)


async def test_what_came_before_the_failure_is_read_first(sequence: RemoteSequence) -> None:
    sequence.deliver(Opened(1, 0))
    sequence.fail(UnavailableError("lost"))
    sequence.deliver(Opened(1, 1))
    assert await sequence.receive() == Opened(1, 0)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="lost"):
            await sequence.receive()


async def test_cancelling_loses_nothing(sequence: RemoteSequence) -> None:
    waiting = asyncio.create_task(sequence.receive())
    await asyncio.sleep(0)
    sequence.deliver(Opened(1, 0))
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert await sequence.receive() == Opened(1, 0)


async def test_a_replica_out_of_its_mind_is_an_error(sequence: RemoteSequence) -> None:
    for number in range(3):
        sequence.deliver(Opened(1, number))
    assert [await sequence.receive() for _ in range(2)] == [Opened(1, 0), Opened(1, 1)]
    with pytest.raises(InternalError, match="more than it was asked for"):
        await sequence.receive()


async def test_only_a_reader_that_waits_too_long_is_told_so(
    sequence: RemoteSequence, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence.fail_if_overdue()
    waiting = asyncio.create_task(sequence.receive())
    await asyncio.sleep(0)
    sequence.fail_if_overdue()
    monkeypatch.setattr(remote_sequence, "ANSWER_DEADLINE_S", -1.0)
    sequence.fail_if_overdue()
    with pytest.raises(DeadlineExceededError, match="sent nothing"):
        await waiting


async def test_nobody_waits_nothing_is_overdue(sequence: RemoteSequence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_sequence, "ANSWER_DEADLINE_S", -1.0)
    sequence.deliver(Opened(1, 0))
    sequence.fail_if_overdue()
    assert await sequence.receive() == Opened(1, 0)
