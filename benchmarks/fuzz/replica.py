"""What orchestrators send, against a replica: stream server, validation and a real engine with a tiny model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import shared.checkout  # noqa: F401  # finds tests.support

from fuzz.frames import requests
from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.frames import EOF, Service
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.stream import CODECS
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
            with contextlib.suppress(grpc.aio.UsageError):  # the replica has ended the call
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
    """Of a random model of printable characters, which is saved there, on free ports."""
    save_printable_tokenizer(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE, num_hidden_layers=1, **sizes).save_pretrained(folder)
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024, "max_draft_tokens": 8, "max_sequences": 3}
    section = {"model": str(folder), "engine": engine, "port": 0}
    orchestrator = {"port": 0, "http": {"port": 0}, "connect_timeout_s": 1.0}
    return config_from_dict(
        {"target": section, "draft": section, "orchestrator": orchestrator, "cache_dir": str(folder / "cache")}
    )
