"""What waits for a peer: its items grow while nobody reads, and nothing is lost."""

import asyncio
from collections.abc import Sequence

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import CloseSequence, Command, Event, Opened, OpenSequence, Verdict
from pilotfish.rpc.frames import EOF
from pilotfish.rpc.handshake import Hello, Welcome
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.rpc.replica.sequence_table import SequenceTable
from pilotfish.rpc.replica.stream_connection import StreamConnection
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.types import FinishReason, Limits, LoadReport, ModelInfo, SamplingParams

MODEL = ModelInfo(model_id="toy", tokenizer_fingerprint="toy", vocab_size=100, max_context_tokens=100)
LIMITS = Limits(max_draft_tokens=4, max_sequences=8)


class FakeReplica:
    def __init__(self) -> None:
        self.codec = TargetFrames()
        self.observer = ReplicaObserver()
        self.welcome = Welcome(model=MODEL, limits=LIMITS, replica_id="a")
        self.table: SequenceTable[StreamConnection] = SequenceTable()
        self.load = LoadReport()
        self.sent: list[Command] = []
        self.has_commands = asyncio.Event()

    def send(self, commands: Sequence[Command]) -> None:
        self.sent.extend(commands)
        self.has_commands.set()


class FakeContext:
    """A peer whose reading the test decides on."""

    def __init__(self, *frames: object) -> None:
        self.incoming: asyncio.Queue = asyncio.Queue()
        for frame in frames:
            self.incoming.put_nowait(frame)
        self.may_write = asyncio.Semaphore(1)  # the Welcome
        self.written: asyncio.Queue = asyncio.Queue()

    async def read(self) -> object:
        return await self.incoming.get()

    async def write(self, frame: object) -> None:
        await self.may_write.acquire()
        self.written.put_nowait(frame)

    def peer(self) -> str:
        return "test"


class Stalled:
    """A connection with open sequences 1 and 2, whose peer has read nothing but the Welcome."""

    def __init__(self) -> None:
        self.replica = FakeReplica()
        frame = self.replica.codec.request_frame_type()
        for sequence_id in (1, 2):
            opening = OpenSequence(sequence_id, (1, 2, 3), SamplingParams())
            self.replica.codec.add_request(frame, opening)
        self.context = FakeContext(self.replica.codec.hello_frame(Hello(peer="test")), frame)
        self.connection = StreamConnection(self.replica, self.context)
        self.serving = asyncio.create_task(self.connection.serve())

    async def start(self) -> None:
        await self.context.written.get()
        await self.replica.has_commands.wait()

    def deliver(self, sequence_id: int, event: Event) -> None:
        entry = self.replica.table.find(sequence_id)
        assert entry is not None
        self.connection.deliver(entry, event)

    async def next_events(self) -> list[Event]:
        self.context.may_write.release()
        return self.replica.codec.events(await self.context.written.get())

    async def stop(self) -> None:
        self.context.incoming.put_nowait(EOF)
        await self.serving


@pytest.fixture
async def stalled():
    stalled = Stalled()
    await stalled.start()
    yield stalled
    await stalled.stop()


def plain(length: int, token_id: int, finish: FinishReason | None = None) -> Verdict:
    return Verdict(77, length, 0, 0, (token_id,), finish_reason=finish)


async def test_plain_steps_that_wait_become_one_verdict_for_each_sequence(stalled: Stalled) -> None:
    for sequence_id in (1, 2):
        stalled.deliver(sequence_id, Opened(77, 0))
    for step in range(3):
        for sequence_id in (1, 2):
            stalled.deliver(sequence_id, plain(3 + step, 10 * sequence_id + step))
    assert await stalled.next_events() == [
        Opened(1, 0),
        Opened(2, 0),
        Verdict(1, 3, 0, 0, (10, 11, 12)),
        Verdict(2, 3, 0, 0, (20, 21, 22)),
    ]


async def test_a_frame_that_is_being_written_grows_no_more(stalled: Stalled) -> None:
    stalled.deliver(1, plain(3, 10))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the writer has taken it
    stalled.deliver(1, plain(4, 11))
    stalled.deliver(1, plain(5, 12, FinishReason.STOP))
    assert await stalled.next_events() == [Verdict(1, 3, 0, 0, (10,))]
    assert await stalled.next_events() == [Verdict(1, 4, 0, 0, (11, 12), finish_reason=FinishReason.STOP)]


async def test_what_was_closed_before_a_request_that_ends_the_stream_is_closed_in_the_engine() -> None:
    replica = FakeReplica()
    opening, closing = replica.codec.request_frame_type(), replica.codec.request_frame_type()
    replica.codec.add_request(opening, OpenSequence(1, (1, 2, 3), SamplingParams()))
    replica.codec.add_request(closing, CloseSequence(1))
    closing.requests.add()  # holds no item
    hello = replica.codec.hello_frame(Hello(peer="test"))
    with pytest.raises(InvalidRequestError, match="no item"):
        await StreamConnection(replica, FakeContext(hello, opening, closing)).serve()
    assert [type(command) for command in replica.sent] == [OpenSequence, CloseSequence]
    assert len({command.sequence_id for command in replica.sent}) == 1
