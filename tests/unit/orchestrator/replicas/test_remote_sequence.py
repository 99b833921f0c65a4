"""A mailbox on a replica in memory."""

import asyncio

import pytest

from orchestrator.replicas import remote_sequence
from orchestrator.replicas.remote_sequence import RemoteSequence
from pilotfish.errors import DeadlineExceededError, UnavailableError
from pilotfish.features import Features
from pilotfish.messages import Opened, SequenceError, Verdict
from pilotfish.types import FinishReason, SequenceErrorCode


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


def plain(length: int, *token_ids: int, finish: FinishReason | None = None) -> Verdict:
    return Verdict(1, length, 0, 0, token_ids, finish_reason=finish)


async def test_plain_steps_that_wait_together_are_one(memory_link) -> None:
    sequence = RemoteSequence(memory_link("a"), max_events=8)
    for event in (plain(3, 10), plain(4, 11), plain(5, 12, finish=FinishReason.LENGTH)):
        sequence.deliver(event)
    assert sequence.has_waiting_verdict
    assert await sequence.receive() == plain(3, 10, 11, 12, finish=FinishReason.LENGTH)
    assert not sequence.has_waiting_verdict


async def test_other_events_and_gaps_are_kept_apart(memory_link) -> None:
    sequence = RemoteSequence(memory_link("a"), max_events=8)
    features = Features(0, 1, b"12")
    events = [
        plain(3, 10),
        Verdict(1, 4, 2, 2, (11, 12)),
        plain(6, 13),
        SequenceError(1, SequenceErrorCode.STALE, "late", 3),
        Verdict(1, 7, 0, 0, (14,), features=features),
        plain(8, 15),
        plain(10, 16),
    ]
    for event in events:
        sequence.deliver(event)
    assert [await sequence.receive() for _ in events] == events


async def test_on_the_stream_after_a_lost_one_it_is_of_no_use(memory_link) -> None:
    link = memory_link("a")
    sequence = RemoteSequence(link, max_events=2)
    assert sequence.is_welcome
    link.lose()
    link.is_connected = True
    assert not sequence.is_usable
    assert not sequence.is_welcome
