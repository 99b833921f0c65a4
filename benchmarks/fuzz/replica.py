"""A replica and an orchestrator's link, each against whatever its peer sends: over a real engine with a tiny model."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import shared.checkout  # noqa: F401  # finds tests.support

from fuzz.frames import NUM_SEQUENCES, requests, responses
from orchestrator.replicas.dialing import dialer
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.pool import ModelReference
from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.errors import PilotfishError
from pilotfish.rpc.frames import EOF, Connect, Service
from pilotfish.rpc.link_security import OPEN_LINKS
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.stream import CODECS
from tests.support.held_sequence import HeldSequence
from tests.support.threaded_engine import ThreadedEngine
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama
from tests.support.until import until

UNFORESEEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""No client's fault."""
SAID_TOO_LATE = "Internal error from Core"
"""gRPC's own words for a frame that is written while the replica ends the call."""


class ReplicaSurface:
    """One input is what one peer sends, frame by frame."""

    def __init__(self, service: Service) -> None:
        self.name = f"{service} replica"
        self.inputs = requests(CODECS[service])
        self._service: Service = service

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        codec = CODECS[self._service]
        with tempfile.TemporaryDirectory() as folder:
            config = tiny_config(Path(folder))
            self._engine = ThreadedEngine(build_engine(config, self._service))
            self._server = await ReplicaServer.start(codec, self._engine, host="127.0.0.1", port=0, port_setting="none")
            async with grpc.aio.insecure_channel(self._server.address) as channel:
                self._connect: Any = channel.stream_stream(
                    f"/{codec.service_name}/Connect", response_deserializer=codec.response_frame_type.FromString
                )
                yield
            await self._server.drain_and_stop(0)
            await self._engine.close()

    async def run(self, data: Sequence[bytes]) -> set[str]:
        ends: set[str] = set()
        call = self._connect()
        with contextlib.suppress(grpc.aio.AioRpcError):  # its status is asked for below
            # The replica has ended the call.
            with contextlib.suppress(grpc.aio.UsageError, asyncio.InvalidStateError):
                for frame in data:
                    await call.write(frame)
                await call.done_writing()
            while (frame := await call.read()) is not EOF:
                for response in frame.responses:
                    kind = response.WhichOneof("item")
                    ends.add(f"{kind}: {response.error.message}" if kind == "error" else str(kind))
        code, details = await call.code(), await call.details()
        ends.add(f"{code.name}: {details}")
        if code in UNFORESEEN and details != SAID_TOO_LATE:
            raise AssertionError(f"{code.name}: {details}")
        await until(self._is_idle)  # or it is a hang: the peer has left, and something is still held
        return ends

    def _is_idle(self) -> bool:
        load = self._engine.load
        return not (load.num_sequences_running + load.num_sequences_waiting + len(self._server.streams.table))


def tiny_config(folder: Path) -> Config:
    """Configuration of a random model of printable characters, which is saved there, on free ports."""
    save_printable_tokenizer(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE, num_hidden_layers=1, **sizes).save_pretrained(folder)
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024, "max_draft_tokens": 8, "max_sequences": 3}
    section = {"model": str(folder), "engine": engine, "port": 0}
    orchestrator = {"port": 0, "http": {"port": 0}, "connect_timeout_s": 1.0}
    return config_from_dict(
        {"target": section, "draft": section, "orchestrator": orchestrator, "cache_dir": str(folder / "cache")}
    )


@contextlib.asynccontextmanager
async def replica_of(service: Service, connect: Connect) -> AsyncIterator[str]:
    """A server of Connect calls whose frames are bytes; its address."""
    server = grpc.aio.server()
    handlers = {"Connect": grpc.stream_stream_rpc_method_handler(connect)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(CODECS[service].service_name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


class RepliesSurface:
    """One input is what one replica says from handshake to end."""

    def __init__(self, service: Service) -> None:
        self.name = f"{service} replies"
        self.inputs = responses(CODECS[service])
        self._service: Service = service
        self._said: Sequence[bytes] = ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with replica_of(self._service, self._say) as self._address:
            yield

    async def _say(self, _: Any, context: Any) -> None:
        await context.read()
        for frame in self._said[:1]:
            await context.write(frame)
        await context.read()  # what is opened
        for frame in self._said[1:]:
            await context.write(frame)

    async def run(self, data: Sequence[bytes]) -> set[str]:
        self._said = data
        ends: set[str] = set()
        readers: list[asyncio.Task[None]] = []
        link = ReplicaLink(
            "fuzzed",
            self._address,
            dialer(self._service, "", OPEN_LINKS),
            ModelReference().check if self._service == "target" else None,
            on_change=lambda: readers.extend(_readers(link, ends) if link.is_connected else ()),
            on_room=lambda: None,
            silence_timeout_s=3.0,
        )
        life = asyncio.create_task(link.run())
        try:
            await until(lambda: not link.is_connected and link.problem not in ("", "not connected yet"))
        finally:
            life.cancel()
            await asyncio.wait((life,))
        ends.add(f"link: {link.problem.rpartition(' nonsense: ')[2]}")
        await asyncio.gather(*readers)
        if link.num_sequences:
            raise AssertionError(f"{link.num_sequences} sequences are still attached")
        return ends


def _readers(link: ReplicaLink, ends: set[str]) -> list[asyncio.Task[None]]:
    """Sequences that are opened, and that receive whatever comes for them."""
    sequences = [HeldSequence(link) for _ in range(NUM_SEQUENCES)]
    return [asyncio.create_task(_receive(sequence, ends)) for sequence in sequences]


async def _receive(sequence: HeldSequence, ends: set[str]) -> None:
    try:
        while True:
            ends.add(type(await sequence.receive()).__name__)
    except PilotfishError as error:
        ends.add(type(error).__name__)
    finally:
        sequence.close()
