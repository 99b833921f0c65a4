"""Frames that orchestrators send, against a replica: stream server, validation and a real engine with a tiny model."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import shared.checkout  # noqa: F401  # finds tests.support

from fuzz.protos import fill, garble
from pilotfish.config import config_from_dict
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.factory import build_engine
from pilotfish.messages import Command, Event
from pilotfish.rpc.frames import EOF, FrameCodec, Service
from pilotfish.rpc.handshake import PROTOCOL_VERSION, Hello, Welcome
from pilotfish.rpc.replica.stream_server import StreamServer
from pilotfish.rpc.stream import CODECS
from pilotfish.types import Limits, LoadReport, ModelInfo
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama

NUM_SEQUENCES = 4
MAX_IDLE_TURNS = 2000
"""Of the loop, until an engine that peers left has let go of everything: a sequence has 128 tokens at most."""


def pack(frames: Sequence[bytes]) -> bytes:
    """Several frames as one input."""
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def unpack(data: bytes) -> list[bytes]:
    frames = []
    while data:
        end = 4 + struct.unpack(">I", data[:4])[0]
        frames.append(data[4:end])
        data = data[end:]
    return frames


def mutated(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Frames garbled, left out, repeated, or taken from another input."""
    frames, others = unpack(data), unpack(other)
    for _ in range(rng.choice([1, 2, 4])):
        place = rng.randrange(len(frames))
        match rng.randrange(5):
            case 0:
                frames.insert(place, rng.choice(others))
            case 1 if len(frames) > 1:
                del frames[place]
            case _:
                frames[place] = garble(rng, frames[place], rng.choice(others))
    return pack(frames[:40])


class ReplicaSurface:
    """One input is what one peer sends."""

    def __init__(self, service: Service) -> None:
        self.name = f"{service} replica"
        self._service: Service = service
        self._codec = CODECS[service]
        self._core: EngineCore
        self._server: StreamServer | None = None
        self._engine: InlineEngine

    def make(self, rng: random.Random) -> bytes:
        hello = Hello(peer="fuzz", protocol_version=PROTOCOL_VERSION if rng.random() < 0.98 else rng.randrange(9))
        frames = [self._codec.hello_frame(hello)]
        lengths: dict[int, int] = {}
        for _ in range(rng.choice([1, 2, 4, 8, 16])):
            frame = self._codec.request_frame_type()
            for _ in range(rng.choice([1, 1, 2, 4])):
                fill_request(rng, frame.requests.add(), lengths)
            frames.append(frame)
        return pack([frame.SerializeToString() for frame in frames])

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return mutated(rng, data, other)

    def size(self, data: bytes) -> int:
        return len(unpack(data))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            self._core = tiny_core(Path(folder), self._service)
            try:
                yield
            finally:
                await self._stop()

    async def run(self, data: bytes) -> set[str]:
        if self._server is None:
            self._start()
        assert self._server is not None
        context = FakeContext(self._codec, unpack(data))
        try:
            await self._serve(context)
        except BaseException:
            await self._stop()  # the next input begins with another server
            raise
        return context.ends

    async def _serve(self, context: FakeContext) -> None:
        assert self._server is not None
        with contextlib.suppress(grpc.aio.AbortError):
            await self._server.connect(None, context)  # type: ignore[arg-type]
        for _ in range(MAX_IDLE_TURNS):
            if not self._core.has_work and not self._core.is_waiting:
                break
            await asyncio.sleep(0)
        load = self._core.load()
        held = load.num_sequences_running + load.num_sequences_waiting + len(self._server.table)
        if held or self._core.has_work:
            raise AssertionError(f"the peer has left, and {held} sequences are still held")

    def _start(self) -> None:
        self._engine = InlineEngine(self._core)
        welcome = Welcome(model=self._core.model, limits=self._core.limits, replica_id="fuzzed")
        self._server = StreamServer(self._codec, self._engine, welcome)
        self._server.start()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()


class InlineEngine:
    """An engine that computes on the event loop: an input does the same each time."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._has_arrived = asyncio.Event()

    @property
    def model(self) -> ModelInfo:
        return self._core.model

    @property
    def limits(self) -> Limits:
        return self._core.limits

    @property
    def load(self) -> LoadReport:
        return self._core.load()

    def send(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._core.submit(command)
        self._has_arrived.set()

    async def receive(self) -> Sequence[Event]:
        await asyncio.sleep(0)
        while not self._core.has_work:
            if self._core.is_waiting:  # for the thread that compiles grammars
                await asyncio.sleep(0.001)
                continue
            self._has_arrived.clear()
            await self._has_arrived.wait()
        return self._core.step()

    async def close(self) -> None:
        """Nothing is open."""


class FakeContext:
    """The server's end of a call whose peer says these frames and leaves."""

    def __init__(self, codec: FrameCodec, frames: Sequence[bytes]) -> None:
        self._codec = codec
        self._frames = iter(frames)
        self.ends: set[str] = set()
        """What the peer was told."""

    async def read(self) -> Any:
        await asyncio.sleep(0)
        data = next(self._frames, None)
        return EOF if data is None else self._codec.request_frame_type.FromString(data)

    async def write(self, frame: Any) -> None:
        frame.SerializeToString()
        for response in frame.responses:
            kind = response.WhichOneof("item")
            self.ends.add(f"{kind}: {response.error.message}" if kind == "error" else str(kind))
        await asyncio.sleep(0)

    def peer(self) -> str:
        return "fuzz"

    async def abort(self, code: grpc.StatusCode, details: str, **_: object) -> None:
        self.ends.add(f"{code.name}: {details}")
        if code is grpc.StatusCode.INTERNAL:
            raise RuntimeError(details)
        raise grpc.aio.AbortError


def fill_request(rng: random.Random, request: Any, lengths: dict[int, int]) -> None:
    """A command of any kind, mostly on a sequence that is open, where it stands."""
    sequence_id = rng.randint(1, NUM_SEQUENCES)
    kinds = [field.name for field in request.DESCRIPTOR.fields]
    kind = "open" if sequence_id not in lengths else rng.choice([*kinds, *kinds[1:-1] * 3])
    item = getattr(request, kind)
    item.SetInParent()
    fill(rng, item, share=rng.choice([0.0, 0.1, 0.3, 0.6]))
    if rng.random() < 0.1:
        return
    item.sequence_id = sequence_id
    tame(rng, item)
    if kind == "open":
        item.prompt_token_ids.extend(rng.randrange(PRINTABLE_VOCAB_SIZE) for _ in range(rng.choice([1, 4, 20, 60])))
        item.sampling.max_tokens = item.sampling.max_tokens or 100
        item.sampling.top_p = item.sampling.top_p or 1.0
        item.sampling.repetition_penalty = item.sampling.repetition_penalty or 1.0
        item.sampling.acceptance = item.sampling.acceptance or rng.choice([1, 2])
        lengths[sequence_id] = len(item.prompt_token_ids) + len(item.output_token_ids)
    elif kind == "close":
        lengths.pop(sequence_id, None)
    else:
        item.base_length = max(0, lengths[sequence_id] + rng.choice([0, 0, 0, 0, 1, 2, -1]))
        lengths[sequence_id] += rng.choice([0, 1, 1, 2, 4])
        if kind == "propose":
            del item.new_token_ids[min(item.base_length, 4) :]
            item.num_draft_tokens = item.num_draft_tokens or 3
        elif kind == "decode":
            item.num_tokens = item.num_tokens or 5
        elif rng.random() < 0.9:
            num_drafts = len(item.draft_token_ids)
            item.parents[:] = [rng.randint(-1, row - 1) for row in range(num_drafts)] if item.parents else []
            del item.draft_probs[num_drafts:]
            while item.draft_probs and len(item.draft_probs) < num_drafts:
                item.draft_probs.add(token_ids=[1, 2], probs=[0.5, 0.5])


def tame(rng: random.Random, message: Any) -> None:
    """Token ids that exist, and numbers that mostly fit their fields: what is refused at once shows little."""
    for field, value in message.ListFields():
        if field.name.endswith("token_ids"):
            value[:] = [token_id % PRINTABLE_VOCAB_SIZE for token_id in value]
        elif field.name in ("token_id", "stop_token_id"):
            setattr(message, field.name, value % PRINTABLE_VOCAB_SIZE)
        elif field.name in ("num_draft_tokens", "max_nodes", "num_logprobs", "top_k") and rng.random() < 0.9:
            setattr(message, field.name, 1 + value % 8)
        elif field.cpp_type == field.CPPTYPE_FLOAT and rng.random() < 0.9:
            if field.is_repeated:
                value[:] = [0.5 for _ in value]
            else:
                setattr(message, field.name, rng.choice([0.5, 0.9]))
        elif field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                tame(rng, inner)
    if message.DESCRIPTOR.name == "SparseDistribution" and rng.random() < 0.9:
        message.probs[:] = [1 / max(1, len(message.token_ids))] * len(message.token_ids)


def tiny_core(folder: Path, service: Service) -> EngineCore:
    """A random model of printable characters."""
    save_printable_tokenizer(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE, num_hidden_layers=1, **sizes).save_pretrained(folder)
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024, "max_draft_tokens": 8, "max_sequences": 3}
    section = {"model": str(folder), "engine": engine}
    return build_engine(config_from_dict({service: section, "cache_dir": str(folder / "cache")}), service)
