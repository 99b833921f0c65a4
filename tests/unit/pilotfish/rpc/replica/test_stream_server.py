"""The listening end: sequences of peers, what is refused, and what is freed."""

import asyncio
from collections.abc import Sequence

import grpc.aio
import pytest

from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import InvalidRequestError, PilotfishError, UnavailableError
from pilotfish.messages import CloseSequence, Command, Decode, Opened, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.rpc.channel import open_channel
from pilotfish.rpc.frames import EOF
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.replica import stream_connection
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.rpc.v1 import target_pb2
from pilotfish.types import FinishReason, SamplingParams, SequenceErrorCode
from tests.support.peer import RecordingPeer
from tests.support.until import until

GREEDY = SamplingParams(temperature=0, max_tokens=1 << 15)
CODEC = TargetFrames()


def opened(sequence_id: int, *token_ids: int) -> OpenSequence:
    return OpenSequence(sequence_id, token_ids or (1, 2, 3), GREEDY)


def frame_of(*commands: Command) -> target_pb2.TargetRequestFrame:
    frame = CODEC.request_frame_type()
    for command in commands:
        CODEC.add_request(frame, command)
    return frame


async def refusal(peer: RecordingPeer, *commands: Command) -> SequenceError:
    event = await peer.ask(*commands)
    assert isinstance(event, SequenceError)
    return event


async def raw_status(address: str, *frames: bytes) -> PilotfishError:
    """Send raw bytes as frames; the error that the call ends with."""
    async with open_channel(address) as channel:
        call = channel.stream_stream("/pilotfish.v1.Target/Connect")()
        for frame in frames:
            await call.write(frame)
        try:
            while await call.read() is not EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error)
        pytest.fail("the call ended without an error")


# Peers and their sequences.


async def test_a_finished_sequence_is_forgotten(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=2)
    async with RecordingPeer(replica.address, "target") as peer:
        peer.send(OpenSequence(1, (1, 2), sampling), Decode(1, 2, 5))
        *_, last = await peer.events(3)
        assert isinstance(last, Verdict)
        assert last.finish_reason is FinishReason.LENGTH
        assert len(replica.streams.table) == engine.num_sequences == 0
        assert (await refusal(peer, Decode(1, 4, 1))).code is SequenceErrorCode.UNKNOWN_SEQUENCE
        assert await peer.ask(opened(1)) == Opened(1, 0)


@pytest.mark.parametrize("learn_as", ["", "mine"])
async def test_the_engine_hears_how_a_sequence_was_closed_that_it_may_keep(
    replica: ReplicaServer, engine: EmulatedEngine, monkeypatch: pytest.MonkeyPatch, learn_as: str
) -> None:
    closed: list[CloseSequence] = []
    send = engine.send

    def noted(commands: Sequence[Command]) -> None:
        closed.extend(command for command in commands if isinstance(command, CloseSequence))
        send(commands)

    monkeypatch.setattr(engine, "send", noted)
    sampling = SamplingParams(temperature=0, max_tokens=2)
    async with RecordingPeer(replica.address, "target") as peer:
        for sequence_id in (1, 2):
            peer.send(OpenSequence(sequence_id, (1, 2), sampling, learn_as=learn_as), Decode(sequence_id, 2, 5))
            await peer.events(3)
        # Both have ended for the engine; of one the peer says that its answer has come to its end.
        peer.send(CloseSequence(1, is_finished=True))
        await peer.ask(opened(3))
        assert [command.is_finished for command in closed] == ([True] if learn_as else [])
    await until(lambda: len(closed) == (3 if learn_as else 1))  # of what the stream leaves, nothing is kept
    assert [command.is_finished for command in closed[-1:]] == [False]
    assert len({command.sequence_id for command in closed}) == len(closed)


async def test_close_is_idempotent_and_silent(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    async with RecordingPeer(replica.address, "target") as peer:
        await peer.ask(opened(1))
        peer.send(CloseSequence(1), CloseSequence(1), CloseSequence(99))
        # The next answer is the next command's.
        assert await peer.ask(opened(2)) == Opened(2, 0)
        assert engine.num_sequences == 1


# What is refused, one sequence at a time.


@pytest.mark.parametrize(
    ("command", "code", "message", "base_length"),
    [
        (Decode(9, 3, 1), SequenceErrorCode.UNKNOWN_SEQUENCE, "sequence 9 is not open here", 3),
        (Verify(9, 3, (1,)), SequenceErrorCode.UNKNOWN_SEQUENCE, "sequence 9 is not open here", 3),
        (opened(1), SequenceErrorCode.INVALID, "sequence 1 is open already", 0),
        (opened(9, 256), SequenceErrorCode.INVALID, "prompt token id 256 is not in the vocabulary of 256", 0),
        (Verify(1, 3, (1,) * 5), SequenceErrorCode.INVALID, "5 draft tokens; at most 4", 3),
        (Verify(1, 3, (256,)), SequenceErrorCode.INVALID, "draft token id 256", 3),
        (Verify(1, 2, (1,)), SequenceErrorCode.STALE, "tokens; 3 are committed", 2),
    ],
)
async def test_a_refusal_leaves_the_rest_alone(
    replica: ReplicaServer, command: Command, code: SequenceErrorCode, message: str, base_length: int
) -> None:
    async with RecordingPeer(replica.address, "target") as peer:
        await peer.ask(opened(1))
        error = await refusal(peer, command)
        assert (error.sequence_id, error.code, error.base_length) == (command.sequence_id, code, base_length)
        assert message in error.message
        assert isinstance(await peer.ask(Decode(1, 3, 1)), Verdict)


async def test_sampling_out_of_range_is_refused(replica: ReplicaServer) -> None:
    frame = frame_of(opened(5))
    frame.requests[0].open.sampling.top_p = 2
    async with open_channel(replica.address) as channel:
        call = CODEC.open_call(channel)
        await call.write(CODEC.hello_frame(Hello(peer="test")))
        await call.write(frame)
        assert CODEC.welcome(await call.read()) is not None
        (error,) = CODEC.events(await call.read())
        assert isinstance(error, SequenceError)
        assert error.code is SequenceErrorCode.INVALID
        assert "top_p is 2" in error.message
        call.cancel()


async def test_slots_are_counted_over_all_peers(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    async with RecordingPeer(replica.address, "target") as one, RecordingPeer(replica.address, "target") as two:
        for sequence_id in (1, 2):
            await one.ask(opened(sequence_id))
        await two.ask(opened(1))
        error = await refusal(two, opened(2))
        assert error.code is SequenceErrorCode.RESOURCE_EXHAUSTED
        assert "all 3 sequences" in error.message
        assert engine.num_sequences == 3
        # A slot is free again at once.
        one.send(CloseSequence(1))
        assert await one.ask(opened(5)) == Opened(5, 0)


# Peers that talk nonsense.


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (target_pb2.TargetRequestFrame().SerializeToString(), "the first frame of a stream must hold a Hello"),
        (b"\xff\xff\xff", "a frame is no TargetRequestFrame"),
    ],
)
async def test_a_stream_that_begins_with_no_hello(replica: ReplicaServer, frame: bytes, message: str) -> None:
    error = await raw_status(replica.address, frame)
    assert isinstance(error, InvalidRequestError)
    assert message in str(error)


async def test_garbage_after_the_hello_frees_the_sequences(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    hello = CODEC.hello_frame(Hello(peer="test")).SerializeToString()
    opening = frame_of(opened(1)).SerializeToString()
    closing = frame_of(CloseSequence(1))  # what was closed in the same frame is to be closed in the engine, too
    closing.requests.add()  # holds no item
    for garbage in (b"\xff\xff\xff", closing.SerializeToString()):
        assert isinstance(await raw_status(replica.address, hello, opening, garbage), InvalidRequestError)
        await until(lambda: engine.num_sequences == 0)
    async with RecordingPeer(replica.address, "target") as peer:
        assert await peer.ask(opened(1)) == Opened(1, 0)


async def test_a_peer_that_never_says_hello(replica: ReplicaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_connection, "HELLO_TIMEOUT_S", 0.02)
    assert "no Hello came within 0.02 s" in str(await raw_status(replica.address))


async def test_a_peer_that_does_not_read_is_cut_off(
    replica: ReplicaServer, engine: EmulatedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_connection, "MAX_UNSENT_ITEMS", 64)
    small_window = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024))
    async with (
        grpc.aio.insecure_channel(replica.address, options=small_window) as channel,
        RecordingPeer(replica.address, "target") as other,
    ):
        call = CODEC.open_call(channel)
        await call.write(CODEC.hello_frame(Hello(peer="slow")))
        endless = OpenSequence(1, (1, 2, 3), SamplingParams(temperature=0, max_tokens=2**31))
        await call.write(frame_of(endless))
        await other.ask(opened(1))
        await until(lambda: engine.num_sequences == 2)
        # More than any window between the two holds, and nobody reads it.
        await call.write(frame_of(Decode(1, 3, 2**31)))
        await until(lambda: engine.num_sequences == 1)
        assert isinstance(await other.ask(Decode(1, 3, 1)), Verdict)
        call.cancel()


async def test_what_a_slow_reader_finds_is_whole_and_in_order(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    """Plain steps that wait become one Verdict of each sequence; a frame that is being written grows no more."""
    num_tokens = 600
    commands = [command for number in (1, 2) for command in (opened(number), Decode(number, 3, num_tokens))]
    lengths, num_verdicts = {1: 3, 2: 3}, 0
    async with open_channel(replica.address) as channel:
        call = CODEC.open_call(channel)
        await call.write(CODEC.hello_frame(Hello(peer="slow")))
        await call.write(frame_of(*commands))
        assert CODEC.welcome(await call.read()) is not None
        while min(lengths.values()) < 3 + num_tokens:
            await asyncio.sleep(0.01)
            for event in CODEC.events(await call.read()):
                if isinstance(event, Verdict):
                    assert event.base_length == lengths[event.sequence_id]
                    lengths[event.sequence_id] += len(event.token_ids)
                    num_verdicts += 1
        call.cancel()
    assert num_verdicts < 2 * num_tokens  # of two sequences: some waited and were joined


# Load, draining, the end of the engine.


async def test_draining_refuses_new_sequences_and_waits_for_open_ones(replica: ReplicaServer) -> None:
    async with RecordingPeer(replica.address, "target") as peer:
        await peer.ask(opened(1))
        stopping = asyncio.create_task(replica.drain_and_stop(60))
        while not (await peer.load()).draining:
            pass
        error = await refusal(peer, opened(2))
        assert error.code is SequenceErrorCode.UNAVAILABLE
        assert "is draining" in error.message
        assert isinstance(await peer.ask(Decode(1, 3, 1)), Verdict)
        assert not stopping.done()
        peer.send(CloseSequence(1))
        await stopping
        await peer.lost.wait()
        assert "was stopped" in str(peer.losses[0])
    await replica.wait_closed()


async def test_death_of_the_engine_reaches_everybody(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    async with RecordingPeer(replica.address, "target") as one, RecordingPeer(replica.address, "target") as two:
        await one.ask(opened(1))
        engine.die(UnavailableError("Traceback: /secret/path"))
        for peer in (one, two):
            await peer.lost.wait()
            assert isinstance(peer.losses[0], UnavailableError)
            assert "the engine of replica" in str(peer.losses[0])
            assert "secret" not in str(peer.losses[0])
    with pytest.raises(UnavailableError, match="/secret/path"):
        await replica.wait_closed()
    with pytest.raises(UnavailableError, match="has ended"):
        async with RecordingPeer(replica.address, "target"):
            pass
    assert len(replica.streams.table) == 0


async def test_a_peer_that_is_killed_at_any_await(replica: ReplicaServer, engine: EmulatedEngine) -> None:
    for num_steps in range(0, 60, 2):
        async with RecordingPeer(replica.address, "target") as peer:
            peer.send(opened(1), Decode(1, 3, 10_000), opened(2), Verify(2, 3, (1, 2)))
            for _ in range(num_steps):
                await asyncio.sleep(0)
    await until(lambda: replica.streams.num_connections == 0)
    await until(lambda: engine.num_sequences == 0)
    assert len(replica.streams.table) == 0
    assert engine.load.num_kv_blocks_used == 0
