"""The dialling end, against a real replica server."""

import asyncio
import types
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import (
    DeadlineExceededError,
    HandshakeError,
    InvalidRequestError,
    ResourceExhaustedError,
    UnavailableError,
)
from pilotfish.messages import CloseSequence, Decode, Opened, OpenSequence, Verify
from pilotfish.rpc import stream as stream_module
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.stream import MuxStream
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.rpc.v1 import target_pb2
from pilotfish.types import LoadReport, SamplingParams
from tests.support.peer import RecordingPeer

GREEDY = SamplingParams(temperature=0)


class ByteFrames(TargetFrames):
    """Sends bytes as they are."""

    response_frame_type = types.SimpleNamespace(SerializeToString=bytes)


async def serve(connect: Callable, codec: FrameCodec = TargetFrames()) -> tuple[grpc.aio.Server, str]:
    """A server with a Connect method of the test's own."""
    server = grpc.aio.server()
    codec.add_to_server(connect, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("hello", "message"),
    [
        (Hello(peer="me", protocol_version=9), "me speaks stream protocol version 9, replica .* version 1"),
        (Hello(peer="me", tokenizer_fingerprint="other"), "me has tokenizer other, replica .* has emulated"),
    ],
)
async def test_mismatches_are_refused_naming_both_sides(replica: ReplicaServer, hello: Hello, message: str) -> None:
    with pytest.raises(HandshakeError, match=message):
        async with RecordingPeer(replica.address, "target", hello=hello):
            pass
    assert replica.streams.num_connections == 0


async def test_an_older_server_that_does_not_check_is_checked(replica: ReplicaServer) -> None:
    async def connect(_requests: object, context: grpc.aio.ServicerContext) -> None:
        await context.read()
        welcome = target_pb2.TargetResponseFrame()
        welcome.welcome.protocol_version = 0
        await context.write(welcome)
        await context.read()

    server, address = await serve(connect)
    try:
        with pytest.raises(HandshakeError, match=r"version 1, replica .* version 0"):
            async with RecordingPeer(address, "target"):
                pass
    finally:
        await server.stop(None)


async def test_a_replica_that_says_nothing_is_given_up() -> None:
    async def connect(_requests: object, context: grpc.aio.ServicerContext) -> None:
        await asyncio.Event().wait()

    server, address = await serve(connect)
    try:
        with pytest.raises(DeadlineExceededError, match=r"did not answer the handshake within 0\.05 s"):
            await MuxStream.connect(
                address,
                service="target",
                hello=Hello(peer="test"),
                on_events=lambda _: None,
                on_load=lambda _: None,
                on_lost=lambda _: None,
                timeout_s=0.05,
            )
    finally:
        await server.stop(None)


class Hardware:
    """Slows down when told."""

    step_time_s = 0.001

    def step_s(self, _num_sequences: int, _num_tokens: int, _num_context_tokens: int = 0) -> float:
        return self.step_time_s


async def test_what_steps_cost_is_told_with_the_handshake_and_when_it_has_changed() -> None:
    hardware = Hardware()
    engine = EmulatedEngine(step_cost=hardware)
    replica = await ReplicaServer.start(TargetFrames(), engine, host="127.0.0.1", port=0, port_setting="target.port")
    try:
        async with RecordingPeer(replica.address, "target") as peer:
            table = (await peer.load()).step_table
            assert table.step_s(1) == table.step_s(64) == 0.001
            await peer.ask(OpenSequence(7, (1, 2, 3), GREEDY))
            for length in range(3, 60):
                hardware.step_time_s = 0.001 if length < 8 else 0.002
                await peer.ask(Decode(7, length, 1))
                told = (await peer.load()).step_table
                assert not told.rows or length >= 8
                table = told if told.rows else table
    finally:
        await replica.drain_and_stop(0)
    assert table.step_s(1) == pytest.approx(0.002, rel=0.04)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        pytest.param([target_pb2.TargetResponseFrame()], "did not begin with a Welcome", id="no welcome"),
        pytest.param([b"\xff\xff\xff"], "did not begin with a Welcome: a frame is none", id="no frame"),
        pytest.param([None, b"\xff\xff\xff"], "talks nonsense: a frame is none", id="no frame later"),
        pytest.param(
            [None, target_pb2.TargetResponseFrame(responses=[target_pb2.TargetResponse()])],
            "talks nonsense: a response holds no item",
            id="no item",
        ),
    ],
)
async def test_a_replica_that_talks_nonsense_is_told_as_such(
    replica: ReplicaServer, frames: list[Any], message: str
) -> None:
    """None stands for the Welcome: what follows it is a loss of the stream."""
    welcome = TargetFrames().welcome_frame(replica.streams.welcome, LoadReport())

    async def connect(_requests: object, context: grpc.aio.ServicerContext) -> None:
        await context.read()
        for frame in frames:
            await context.write(frame if isinstance(frame, bytes) else (frame or welcome).SerializeToString())
        await context.read()

    server, address = await serve(connect, ByteFrames())
    try:
        if frames[0] is not None:
            with pytest.raises(HandshakeError, match=message):
                await RecordingPeer(address, "target").__aenter__()
            return
        async with RecordingPeer(address, "target") as peer:
            await peer.lost.wait()
            assert message in str(peer.losses[0])
    finally:
        await server.stop(None)


async def test_loss_is_reported_once_and_ends_sending(replica: ReplicaServer) -> None:
    async with RecordingPeer(replica.address, "target") as peer:
        await replica.drain_and_stop(0)
        await peer.lost.wait()
        with pytest.raises(UnavailableError, match="was stopped"):
            peer.send(CloseSequence(1))
        await peer.stream.close()
    assert len(peer.losses) == 1
    assert isinstance(peer.losses[0], UnavailableError)


async def test_a_failing_callback_is_a_loss_not_a_silent_end(replica: ReplicaServer) -> None:
    lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def fail(_events: object) -> None:
        raise ZeroDivisionError

    stream = await MuxStream.connect(
        replica.address,
        service="target",
        hello=Hello(peer="test"),
        on_events=fail,
        on_load=lambda _: None,
        on_lost=lost.set_result,
    )
    stream.send(OpenSequence(1, (1, 2), GREEDY))
    assert "for a reason of our own" in str(await lost)
    await stream.close()


async def test_numbers_that_do_not_fit_do_not_end_the_stream(replica: ReplicaServer) -> None:
    async with RecordingPeer(replica.address, "target") as peer:
        with pytest.raises(InvalidRequestError, match="a Verify cannot be sent"):
            peer.send(Verify(1, 3, (-1,)))
        assert await peer.ask(OpenSequence(1, (1, 2), GREEDY)) == Opened(1, 0)


async def test_the_queue_is_bounded(replica: ReplicaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_UNSENT_ITEMS", 2)
    async with RecordingPeer(replica.address, "target") as peer:
        peer.send(Decode(1, 3, 1), Decode(1, 3, 1))
        with pytest.raises(ResourceExhaustedError, match="does not read: 2 items"):
            peer.send(Decode(1, 3, 1))
        peer.send(CloseSequence(1))  # or it would be held there for as long as the stream lives
