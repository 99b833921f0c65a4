"""Frames that replicas send, against an orchestrator's link to them and the mailboxes of its sequences."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from fuzz.protos import fill
from fuzz.replica import NUM_SEQUENCES, mutated, pack, tame, unpack
from orchestrator.replicas.dialing import dialer
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.reference import ModelReference
from orchestrator.replicas.remote_sequence import RemoteSequence
from pilotfish.errors import PilotfishError
from pilotfish.messages import OpenSequence
from pilotfish.rpc.frames import EOF, Service
from pilotfish.rpc.handshake import PROTOCOL_VERSION
from pilotfish.rpc.stream import CODECS
from pilotfish.types import SamplingParams


class RepliesSurface:
    """One input is what one replica says from handshake to end."""

    def __init__(self, service: Service) -> None:
        self.name = f"{service} replies"
        self._service: Service = service
        self._codec = CODECS[service]

    def make(self, rng: random.Random) -> bytes:
        frames = [self._frame(rng, with_welcome=rng.random() < 0.98)]
        frames += [self._frame(rng, with_welcome=rng.random() < 0.02) for _ in range(rng.choice([1, 2, 4, 8, 16]))]
        return pack(frames)

    def _frame(self, rng: random.Random, *, with_welcome: bool) -> bytes:
        frame = self._codec.response_frame_type()
        fill(rng, frame, share=rng.choice([0.3, 0.7, 0.9]))
        for response in frame.responses:
            if response.WhichOneof("item") and rng.random() < 0.9:
                item = getattr(response, response.WhichOneof("item"))
                tame(rng, item)
                item.sequence_id = rng.randint(1, NUM_SEQUENCES)
                if response.WhichOneof("item") == "prepared":
                    item.own_token_ids[:] = [1, 2]
                    item.num_accepted_tokens[:] = [0, 1]
                    item.draft_token_ids[:] = [3, 4, 5, 6]
        frame.ClearField("welcome")
        if with_welcome:
            fill(rng, frame.welcome, share=0.3)
            if rng.random() < 0.95:
                frame.welcome.protocol_version = PROTOCOL_VERSION
                frame.welcome.replica_id = "fuzzed"
        return bytes(frame.SerializeToString())

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return mutated(rng, data, other)

    def size(self, data: bytes) -> int:
        return len(unpack(data))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def run(self, data: bytes) -> set[str]:
        ends: set[str] = set()
        call = SaidCall(self._codec.response_frame_type.FromString, unpack(data))
        links = FakeLinks(lambda: call)
        link = ReplicaLink(
            "fuzzed",
            "nowhere:1",
            dialer(self._service, "", links),  # type: ignore[arg-type]
            ModelReference().check if self._service == "target" else None,
            on_change=lambda: readers.extend(_readers(link, ends) if link.is_connected else ()),
            on_room=lambda: None,
            silence_timeout_s=3.0,
        )
        readers: list[asyncio.Task[None]] = []
        life = asyncio.create_task(link.run())
        try:
            await links.has_closed.wait()
        finally:
            life.cancel()
            await asyncio.wait((life,))
        ends.add(f"link: {link.problem.rpartition(' nonsense: ')[2]}")
        if readers:
            await asyncio.wait(readers)
        for ended in readers:
            ended.result()
        if link.num_sequences:
            raise AssertionError(f"{link.num_sequences} sequences are still attached")
        return ends


def _readers(link: ReplicaLink, ends: set[str]) -> list[asyncio.Task[None]]:
    """Sequences that are opened, and that receive whatever comes for them."""
    sequences = [RemoteSequence(link, max_events=8) for _ in range(NUM_SEQUENCES)]
    for sequence in sequences:
        sequence.send(OpenSequence(sequence.sequence_id, (1, 2, 3), SamplingParams()))
    return [asyncio.create_task(_receive(sequence, ends)) for sequence in sequences]


async def _receive(sequence: RemoteSequence, ends: set[str]) -> None:
    try:
        while True:
            ends.add(type(await sequence.receive()).__name__)
    except PilotfishError as error:
        ends.add(type(error).__name__)
    finally:
        sequence.close()


class FakeLinks:
    """In the place of LinkSecurity: opens channels that lead to calls of our own."""

    metadata: tuple[tuple[str, str], ...] = ()

    def __init__(self, new_call: Callable[[], Any]) -> None:
        self._new_call = new_call
        self.has_closed = asyncio.Event()

    def open_channel(self, _: str) -> FakeChannel:
        return FakeChannel(self._new_call(), self.has_closed)


class FakeChannel:
    """Of one call, which ends with it."""

    def __init__(self, call: Any, has_closed: asyncio.Event) -> None:
        self._call = call
        self._has_closed = has_closed

    def stream_stream(self, *_: object, **__: object) -> Callable[..., Any]:
        return lambda **_: self._call

    async def close(self, _: object) -> None:
        self._call.cancel()
        self._has_closed.set()


class FakeCall:
    """The dialling end of a call, as grpc.aio has it; subclasses say what is read and where what is written goes."""

    def add_done_callback(self, _: object) -> None:
        """It never has a status of its own."""

    def code(self) -> Awaitable[grpc.StatusCode]:
        return _value(grpc.StatusCode.OK)

    def details(self) -> Awaitable[str]:
        return _value("")

    def trailing_metadata(self) -> Awaitable[tuple[()]]:
        return _value(())

    def cancel(self) -> None:
        """See `add_done_callback`."""


class SaidCall(FakeCall):
    """Says these frames, one by one."""

    def __init__(self, deserialise: Callable[[bytes], Any], frames: Sequence[bytes]) -> None:
        self._deserialise = deserialise
        self._frames = iter(frames)

    async def write(self, frame: Any) -> None:
        frame.SerializeToString()

    async def read(self) -> Any:
        await asyncio.sleep(0)
        data = next(self._frames, None)
        return EOF if data is None else parsed(self._deserialise, data)


def parsed(deserialise: Callable[[bytes], Any], data: bytes) -> Any:
    """The message; None for bytes that are none, as grpc.aio has it."""
    try:
        return deserialise(data)
    except DecodeError:
        return None


async def _value(value: Any) -> Any:
    return value
