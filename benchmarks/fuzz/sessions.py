"""Whole answers while replicas garble what they say: requests through the orchestrator's service, over real engines."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from fuzz.protos import fill, garble
from fuzz.replica import FakeContext, InlineEngine, tame, tiny_core
from fuzz.replies import FakeCall, FakeLinks, parsed
from orchestrator.inference import InferenceService
from orchestrator.replicas.dialing import dialer
from orchestrator.replicas.directory import PoolName, ReplicaDirectory
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.replicas.reference import ModelReference
from orchestrator.requests.caller import Caller
from orchestrator.requests.prompt import TextPrompt
from orchestrator.requests.request import GenerationOptions, SpeculationOptions
from pilotfish.config import config_from_dict
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.errors import PilotfishError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.frames import EOF
from pilotfish.rpc.handshake import Welcome
from pilotfish.rpc.replica.stream_server import StreamServer
from pilotfish.rpc.stream import CODECS
from pilotfish.types import AcceptanceMode, SamplingParams

NUM_REPLICAS = 3
PATIENCE_S = 1.0
NUM_REQUESTS = 4
"""At once, of an input."""


class SessionsSurface:
    """An input is the seed of what is asked and what is garbled."""

    name = "sessions"

    def make(self, rng: random.Random) -> bytes:
        return rng.randbytes(8)

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:  # noqa: ARG002
        return rng.randbytes(8)

    def size(self, data: bytes) -> int:  # noqa: ARG002
        return NUM_REQUESTS

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            self._cores: dict[PoolName, EngineCore] = {
                "target": tiny_core(Path(folder), "target"),
                "draft": tiny_core(Path(folder), "draft"),
            }
            self._tokenizer = Tokenizer.load(Path(folder))
            yield

    async def run(self, data: bytes) -> set[str]:
        rng = random.Random(data)
        share = rng.choice([0.02, 0.1, 0.5])
        directory = ReplicaDirectory()
        servers: list[StreamServer] = []
        calls: list[GarblingCall] = []
        pools: dict[PoolName, ReplicaPool] = {}
        for pool, core in self._cores.items():
            codec = CODECS[pool]
            welcome = Welcome(model=core.model, limits=core.limits, replica_id=pool)
            server = StreamServer(codec, InlineEngine(core), welcome)
            server.start()
            servers.append(server)
            links: Any = FakeLinks(lambda server=server: _kept(calls, GarblingCall(server, rng, share)))
            connect = dialer(pool, self._tokenizer.fingerprint, links)
            check = ModelReference().check if pool == "target" else None
            pools[pool] = ReplicaPool(pool, directory, connect, check)
            directory.set_replicas(pool, {f"{pool}{number}": f"nowhere:{number}" for number in range(NUM_REPLICAS)})
        config = config_from_dict({"orchestrator": {"connect_timeout_s": 0.3}})
        service = InferenceService(config, self._tokenizer, pools["target"], pools["draft"])
        for each in pools.values():
            each.start()
        try:
            ends = await asyncio.gather(*(_answer(service, rng) for _ in range(NUM_REQUESTS)))
            held = service.num_active_requests + sum(each.num_sequences for each in pools.values())
        finally:
            for each in pools.values():
                await each.close()
            await asyncio.gather(*(call.serving for call in calls))
            for server in servers:
                await server.close()
            await service.observer.close()
        if held:
            raise AssertionError(f"all requests have ended, and {held} places or sequences are held")
        return set(ends)


def _kept(calls: list[GarblingCall], call: GarblingCall) -> GarblingCall:
    calls.append(call)
    return call


async def _answer(service: InferenceService, rng: random.Random) -> str:
    sampling = SamplingParams(
        temperature=rng.choice([0.0, 1.0]),
        seed=rng.getrandbits(32),
        max_tokens=rng.choice([1, 8, 40]),
        acceptance=rng.choice(list(AcceptanceMode)),
        num_logprobs=rng.choice([None, None, 0, 3]),
    )
    speculation = SpeculationOptions(
        mode=rng.choice(["on", "on", "auto", "off"]), proposer=rng.choice(["draft", "draft", "ngram"])
    )
    stop = rng.choice([(), (), ("a",)])
    options = GenerationOptions(sampling=sampling, speculation=speculation, stop=stop, ignore_eos=rng.random() < 0.5)
    # What was garbled may never come.
    caller = Caller(client_id="fuzz", arrival_ns=time.monotonic_ns(), timeout_s=PATIENCE_S)
    try:
        async with (
            service.serving(TextPrompt("abc" * rng.choice([1, 8])), options, caller) as answer,
            contextlib.aclosing(answer.chunks()) as chunks,
        ):
            async for _ in chunks:
                pass
            return f"{answer.report().finish_reason.name}"
    except PilotfishError as error:
        return f"{type(error).__name__}: {error}"


class GarblingCall(FakeCall):
    """A call to a stream server of this process, some of whose frames arrive as others."""

    def __init__(self, server: StreamServer, rng: random.Random, share: float) -> None:
        self._codec = server.codec
        self._rng = rng
        self._share = share
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self._last = b""
        self.serving = asyncio.create_task(self._serve(server))

    async def _serve(self, server: StreamServer) -> None:
        with contextlib.suppress(grpc.aio.AbortError):
            await server.connect(None, _Context(self))  # type: ignore[arg-type]
        self._heard.put_nowait(EOF)

    async def write(self, frame: Any) -> None:
        self._said.put_nowait(frame.SerializeToString())

    async def read(self) -> Any:
        return await self._heard.get()

    def cancel(self) -> None:
        self._said.put_nowait(None)

    def tell(self, frame: Any) -> None:
        """A frame of the server's."""
        rng = self._rng
        if rng.random() < self._share and not frame.HasField("welcome"):
            for response in frame.responses:
                if rng.random() < 0.5 and response.WhichOneof("item"):
                    item = getattr(response, response.WhichOneof("item"))
                    sequence_id, base_length = item.sequence_id, getattr(item, "base_length", None)
                    fill(rng, item, share=0.2)
                    tame(rng, item)
                    item.sequence_id = sequence_id
                    if base_length is not None and rng.random() < 0.9:
                        item.base_length = base_length
        data = frame.SerializeToString()
        if rng.random() < self._share / 4:
            data = garble(rng, data, self._last)
        self._last = data
        self._heard.put_nowait(parsed(self._codec.response_frame_type.FromString, data))


class _Context(FakeContext):
    """The server's end of a GarblingCall."""

    def __init__(self, call: GarblingCall) -> None:
        super().__init__(call._codec, ())
        self._call = call

    async def read(self) -> Any:
        data = await self._call._said.get()
        return EOF if data is None else self._codec.request_frame_type.FromString(data)

    async def write(self, frame: Any) -> None:
        self._call.tell(frame)
        await asyncio.sleep(0)
