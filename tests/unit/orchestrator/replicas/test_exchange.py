"""What comes of a sequence on a replica in memory, and what becomes of commands."""

import asyncio
import time

import pytest

from orchestrator.replicas import exchange
from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.rounds.commands import Acquire, Acquired, Lost, NotAcquired, Open, Send, Wake, Woken
from orchestrator.rounds.peer import Peer
from pilotfish.errors import DeadlineExceededError, InternalError, ResourceExhaustedError, UnavailableError
from pilotfish.features import Features
from pilotfish.messages import CloseSequence, Decode, Opened, OpenSequence, SequenceError, Verdict
from pilotfish.types import FinishReason, SamplingParams, SequenceErrorCode
from tests.support.held_sequence import HeldSequence
from tests.support.memory_replicas import MemoryLink


class SilentLink(MemoryLink):
    """Says only what the test delivers."""

    def _handle(self, command):
        return []


@pytest.fixture
def link() -> SilentLink:
    return SilentLink("a")


@pytest.fixture
async def sequence(link: SilentLink) -> HeldSequence:
    return HeldSequence(link)


def deliver(link: SilentLink, *events) -> None:
    for event in events:
        link.mailboxes[1].deliver(event)


async def test_what_came_before_the_failure_is_read_first(link, sequence) -> None:
    receiver = link.mailboxes[1]
    receiver.deliver(Opened(1, 0))
    receiver.fail(UnavailableError("lost"))
    receiver.deliver(Opened(1, 1))
    assert await sequence.receive() == Opened(1, 0)
    with pytest.raises(UnavailableError, match="lost"):
        await sequence.receive()


async def test_a_replica_out_of_its_mind_is_left(link, sequence) -> None:
    deliver(link, *(Opened(1, number) for number in range(9)))
    for number in range(8):
        assert await sequence.receive() == Opened(1, number)
    with pytest.raises(InternalError, match="more than it was asked for"):
        await sequence.receive()


async def test_cancelling_loses_nothing(link, sequence) -> None:
    waiting = asyncio.create_task(sequence.receive())
    await asyncio.sleep(0)
    deliver(link, Opened(1, 0))
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert await sequence.receive() == Opened(1, 0)


async def test_only_a_reader_that_waits_too_long_is_told_so(link, sequence, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = link.mailboxes[1]
    receiver.fail_if_overdue()
    waiting = asyncio.create_task(sequence.receive())
    await asyncio.sleep(0)
    receiver.fail_if_overdue()
    monkeypatch.setattr(exchange, "ANSWER_DEADLINE_S", -1.0)
    receiver.fail_if_overdue()
    with pytest.raises(DeadlineExceededError, match="sent nothing"):
        await waiting


def plain(length: int, *token_ids: int, finish: FinishReason | None = None) -> Verdict:
    return Verdict(1, length, 0, 0, token_ids, finish_reason=finish)


async def test_plain_steps_that_wait_together_are_one(link, sequence) -> None:
    deliver(link, plain(3, 10), plain(4, 11), plain(5, 12, finish=FinishReason.LENGTH))
    assert await sequence.receive() == plain(3, 10, 11, 12, finish=FinishReason.LENGTH)
    deliver(link, *(plain(length, 1) for length in range(6, 14)))  # they count as read
    assert len((await sequence.receive()).token_ids) == 8


@pytest.mark.parametrize("ended_by", ["more", "something else", "the end", "hurry"])
async def test_plain_steps_for_which_nobody_waits_stay(link, sequence, ended_by, monkeypatch) -> None:
    waiting = asyncio.create_task(sequence.exchange.next(3))
    await asyncio.sleep(0)
    deliver(link, plain(3, 10), plain(4, 11))
    monkeypatch.setattr(exchange, "ANSWER_DEADLINE_S", -1.0)
    link.mailboxes[1].fail_if_overdue()  # nothing is: the replica has answered
    await asyncio.sleep(0)
    assert not waiting.done()
    assert sequence.exchange.has_verdicts
    num_tokens = 2
    if ended_by == "hurry":
        sequence.exchange.hurry()
    elif ended_by == "something else":
        deliver(link, Verdict(1, 5, 2, 2, (12, 13)))
    else:
        num_tokens = 3
        deliver(link, plain(5, 12, finish=FinishReason.LENGTH if ended_by == "the end" else None))
    assert len((await waiting).message.token_ids) == num_tokens


async def test_other_events_and_gaps_are_kept_apart(link, sequence) -> None:
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
    deliver(link, *events)
    assert [await sequence.receive() for _ in events] == events


async def test_what_cannot_be_sent_is_the_end_of_the_peer(link, sequence) -> None:
    link.is_connected = False
    sequence.send(Decode(1, 3, 4))
    with pytest.raises(UnavailableError, match="not connected"):
        await sequence.receive()
    sequence.close()
    assert not link.mailboxes


async def test_closing_frees_the_replica_once(link, sequence) -> None:
    sequence.close()
    sequence.close()
    assert link.commands[1:] == [CloseSequence(1)]
    assert not link.mailboxes
    sequence.exchange.run([Send(sequence.peer, Decode(1, 3, 4))])
    assert link.commands[1:] == [CloseSequence(1)]


async def test_a_later_time_to_wake_replaces_an_earlier_one_of_the_same_alarm(sequence) -> None:
    late_s, soon_s = time.monotonic() + 60, time.monotonic() + 0.01
    sequence.exchange.run([Wake(late_s, "deadline"), Wake(soon_s, "reading"), Wake(0.0, "deadline")])
    assert await sequence.exchange.next() == Woken(0.0, "deadline")
    assert await sequence.exchange.next() == Woken(soon_s, "reading")


async def test_a_replica_is_waited_for(memory_pool, link) -> None:
    waiting = ReplicaExchange(memory_pool(link), acquire_timeout_s=1, max_unread=8)
    waiting.run([Acquire((1, 2), frozenset(), is_continued=False)])
    assert await waiting.next() == Acquired(link)
    link.is_connected = False
    waiting.run([Acquire((1, 2), frozenset(), is_continued=True)])
    event = await waiting.next()
    assert isinstance(event, NotAcquired)
    assert isinstance(event.error, UnavailableError)


async def test_a_drafter_is_not_overdue_where_a_target_is_waited_for(memory_pool, link, monkeypatch) -> None:
    monkeypatch.setattr(exchange, "ANSWER_DEADLINE_S", -1.0)
    drafter = SilentLink("d")
    both = ReplicaExchange(memory_pool(link), acquire_timeout_s=1, max_unread=8)
    both.run([Acquire((1, 2), frozenset(), is_continued=False)])
    await both.next()
    for each in (drafter, link):
        peer = Peer(each)
        both.run([Open(peer, OpenSequence(peer.sequence_id, (1,), SamplingParams()))])
    waiting = asyncio.create_task(both.next())
    await asyncio.sleep(0)
    drafter.mailboxes[1].fail_if_overdue()
    link.mailboxes[1].fail_if_overdue()
    lost = await waiting
    assert isinstance(lost, Lost)
    assert lost.peer.replica is link
    both.close()


async def test_what_may_be_dropped_is_dropped_where_a_replica_does_not_read(link, sequence) -> None:
    def refuse(command):
        raise ResourceExhaustedError("8192 commands wait")

    link.send = refuse
    sequence.exchange.run([Send(sequence.peer, Decode(1, 3, 4), is_optional=True)])
    deliver(link, Opened(1, 0))
    assert await sequence.receive() == Opened(1, 0)
    sequence.send(Decode(1, 3, 4))
    with pytest.raises(UnavailableError, match="does not read"):
        await sequence.receive()


async def test_after_the_close_nothing_wakes(link: SilentLink) -> None:
    events: list[object] = []
    carried = ReplicaExchange(None, acquire_timeout_s=1.0, max_unread=8, on_event=events.append)
    carried.run([Wake(time.monotonic() + 0.01, "deadline"), Wake(time.monotonic() + 0.01, "reading")])
    carried.close()
    await asyncio.sleep(0.03)
    assert not events
