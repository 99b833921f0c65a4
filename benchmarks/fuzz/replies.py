"""What replicas send, against an orchestrator's link to them and the mailboxes of its sequences."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from fuzz.frames import NUM_SEQUENCES, responses
from orchestrator.replicas.dialing import dialer
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.pool import ModelReference
from orchestrator.replicas.remote_sequence import RemoteSequence
from pilotfish.errors import PilotfishError
from pilotfish.messages import OpenSequence
from pilotfish.rpc.frames import Connect, Service
from pilotfish.rpc.link_security import OPEN_LINKS
from pilotfish.rpc.stream import CODECS
from pilotfish.types import SamplingParams
from tests.support.until import until


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
