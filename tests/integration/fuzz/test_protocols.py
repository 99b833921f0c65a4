"""Any bytes and any messages: decoding ends in a value or in a clean error, and a replica outlives whatever it gets."""

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import grpc.aio
import hypothesis.strategies as st
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings

from orchestrator.conversion import options_from_proto, prompt_from_proto
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import PilotfishError
from pilotfish.messages import OpenSequence
from pilotfish.rpc.frames import EOF, FrameCodec, Service
from pilotfish.rpc.handshake import PROTOCOL_VERSION, Hello, Welcome, check_handshake
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.replica.validation import check_command
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.stream import CODECS
from pilotfish.rpc.v1 import inference_pb2
from pilotfish.types import Limits, ModelInfo, SamplingParams
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.message_strategies import messages
from tests.support.peer import RecordingPeer

TOKENIZER = byte_tokenizer()
MODEL = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=64, max_context_tokens=128)
LIMITS = Limits(max_draft_tokens=8, max_sequences=4)
WELCOME = Welcome(model=MODEL, limits=LIMITS, replica_id="r")
SAID_TOO_LATE = "Internal error from Core"
"""gRPC's own words for a frame that is written while the replica ends the call."""
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def _take_requests(codec: FrameCodec, frame: Any) -> None:
    """As a replica does. Raises PilotfishError."""
    hello = codec.hello(frame)
    if hello is not None:
        _allowing_refusal(check_handshake, hello, WELCOME)
    for request in frame.requests:
        _allowing_refusal(_take_request, codec, request)


def _take_request(codec: FrameCodec, request: Any) -> None:
    check_command(codec.command(request, codec.sequence_id(request)), MODEL, LIMITS)


def _take_responses(codec: FrameCodec, frame: Any) -> None:
    """As an orchestrator does."""
    _allowing_refusal(codec.welcome, frame)
    _allowing_refusal(codec.load, frame)
    _allowing_refusal(codec.events, frame)


def _allowing_refusal(work: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.suppress(PilotfishError):
        work(*arguments)


CASES = [
    pytest.param(codec, kind, take, id=kind.DESCRIPTOR.name)
    for codec in CODECS.values()
    for kind, take in ((codec.request_frame_type, _take_requests), (codec.response_frame_type, _take_responses))
]


@pytest.mark.parametrize(("codec", "kind", "take"), CASES)
def test_any_frame_is_taken_or_refused(codec: FrameCodec, kind: type[Message], take: Callable[..., None]) -> None:
    @QUICK
    @given(messages(kind))
    def check(frame: Message) -> None:
        take(codec, frame)

    check()


@pytest.mark.parametrize(("codec", "kind", "take"), CASES)
def test_any_bytes_are_no_frame_or_one_that_is_taken_or_refused(
    codec: FrameCodec, kind: type[Message], take: Callable[..., None]
) -> None:
    @QUICK
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        try:
            frame = kind.FromString(data)
        except DecodeError:
            return
        take(codec, frame)

    check()


@QUICK
@given(messages(inference_pb2.GenerateRequest))
def test_any_request_for_an_answer_is_understood_or_refused(request: Any) -> None:
    _allowing_refusal(lambda: options_from_proto(request, SpeculationConfig(), TOKENIZER))
    _allowing_refusal(lambda: prompt_from_proto(request, request.WhichOneof("prompt")))


def _hello() -> Hello:
    return Hello(peer="fuzz", protocol_version=PROTOCOL_VERSION)


async def _send(address: str, codec: FrameCodec, frames: Iterable[bytes]) -> str:
    """Raw bytes after a proper hello; how the call ended: "" if it did not, or before this had heard."""
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(f"/{codec.service_name}/Connect")()
        try:
            await call.write(codec.hello_frame(_hello()).SerializeToString())
            for frame in frames:
                await call.write(frame)
            await call.done_writing()
            while await call.read() is not EOF:
                pass
        except grpc.aio.AioRpcError as error:
            if error.details() == SAID_TOO_LATE:
                return ""
            return f"{type(error_from_rpc(error)).__name__}: {error.details()}"
        return ""


@pytest.mark.parametrize("service", ["target", "draft"])
async def test_a_replica_outlives_whatever_it_gets(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    codec = CODECS[service]
    batches = _examples(codec)
    engine = EmulatedEngine(service, limits=LIMITS, max_context_tokens=128)
    server = await ReplicaServer.start(codec, engine, host="127.0.0.1", port=0, port_setting="test.port")
    try:
        for frames in batches:
            ending = await _send(server.address, codec, frames)
            assert ending == "" or ending.startswith("InvalidRequestError: "), ending
            assert "Traceback" not in ending
        # What strangers opened is gone, and who talks sense is served.
        async with RecordingPeer(server.address, service) as peer:
            peer.send(OpenSequence(1, (1, 2), SamplingParams()))
            assert await peer.load() is not None
            assert not peer.losses
        while engine.num_sequences:  # noqa: ASYNC110  # it has no event that a test could see
            await asyncio.sleep(0)
    finally:
        await server.drain_and_stop(0)
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def _examples(codec: FrameCodec) -> list[list[bytes]]:
    """A fixed set of nonsense: frames of the right kind, cut, flipped and random."""
    batches: list[list[bytes]] = []

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(st.lists(messages(codec.request_frame_type), min_size=1, max_size=4), st.binary(max_size=64))
    def collect(frames: list[Message], noise: bytes) -> None:
        data = [frame.SerializeToString() for frame in frames]
        batches.append(data)
        batches.append([data[0][: len(data[0]) // 2] + noise])
        batches.append([struct.pack(">I", len(noise)) + noise])

    collect()
    return batches
