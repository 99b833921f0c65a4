"""The listening end of all multiplexed streams of a replica, in front of one engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from pilotfish.engine_client import EngineClient, Families
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import Command
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.handshake import Welcome
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.rpc.replica.sequence_table import SequenceTable
from pilotfish.rpc.replica.stream_connection import Context, StreamConnection
from pilotfish.rpc.status import aborting_on_error
from pilotfish.types import LoadReport

logger = logging.getLogger(__name__)

LOAD_INTERVAL_S = 0.5
"""Load goes out at least this often (the protocol promises once a second)."""


class StreamServer:
    """Routes commands of all peers to the engine and its events back to them.

    `start` before the first call; `close` when the gRPC server has stopped. Does not close the engine.
    """

    def __init__(
        self,
        codec: FrameCodec,
        engine: EngineClient,
        welcome: Welcome,
        observer: ReplicaObserver | None = None,
        security: LinkSecurity = OPEN_LINKS,
    ) -> None:
        """observer: gets every sequence and event; None: one that only counts. security: whom the streams serve."""
        self.codec = codec
        self.observer = observer or ReplicaObserver()
        self.welcome = welcome
        self.table: SequenceTable[StreamConnection] = SequenceTable()
        self._engine = engine
        self._security = security
        self._connections: set[StreamConnection] = set()
        self._is_draining = False
        # The true reason may quote the engine's standard error, which is not for peers.
        self._end_error = UnavailableError(f"the engine of replica {welcome.replica_id} has ended")
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._lost: asyncio.Future[PilotfishError] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begin to route events. Call it on the event loop."""
        self._tasks = (asyncio.create_task(self._pump()), asyncio.create_task(self._report_load()))

    @property
    def load(self) -> LoadReport:
        """The engine's load, as it is reported to peers."""
        load = self._engine.load
        return msgspec.structs.replace(load, draining=True) if self._is_draining else load

    @property
    def num_connections(self) -> int:
        return len(self._connections)

    def welcome_for(self, tokenizer_fingerprint: str) -> Welcome:
        """See Replica."""
        engine = self._engine
        model = engine.model_for(tokenizer_fingerprint) if isinstance(engine, Families) else None
        return self.welcome if model is None else msgspec.structs.replace(self.welcome, model=model)

    def assign(self, sequence_id: int, tokenizer_fingerprint: str) -> None:
        """See Replica."""
        if isinstance(self._engine, Families):
            self._engine.assign(sequence_id, tokenizer_fingerprint)

    def send(self, commands: Sequence[Command]) -> None:
        """See Replica."""
        self._engine.send(commands)

    async def connect(self, _requests: Any, context: Context) -> None:
        async with aborting_on_error(context):
            self._security.check_call(context)
            if self._lost.done():
                raise self._end_error
            connection = StreamConnection(self, context)
            self._connections.add(connection)
            try:
                await connection.serve()
            finally:
                self._connections.discard(connection)

    async def drain(self, grace_s: float) -> None:
        """Refuse new sequences, report so to the peers, and wait until the open ones end or grace_s is over."""
        self._is_draining = True
        self._wake_connections()
        empty = asyncio.create_task(self.table.wait_empty())
        try:
            await asyncio.wait((empty, self._lost), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            empty.cancel()

    def disconnect(self) -> None:
        """End every stream, and let the peers know why."""
        stopped = UnavailableError(f"replica {self.welcome.replica_id} was stopped")
        for connection in self._connections:
            connection.fail(stopped)

    async def wait_lost(self) -> PilotfishError:
        """Waits until the engine is gone; returns why."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """Stop routing. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pump(self) -> None:
        try:
            while True:
                events = await self._engine.receive()
                self.observer.add(events)
                for event in events:
                    entry = self.table.find(event.sequence_id)
                    if entry is not None:
                        entry.peer.deliver(entry, event)
        except PilotfishError as error:
            self._lose(error)
        except Exception as error:
            logger.exception("routing the engine's events failed")
            self._lose(UnavailableError(f"routing the engine's events failed: {error!r}"))

    async def _report_load(self) -> None:
        while True:
            await asyncio.sleep(LOAD_INTERVAL_S)
            self._wake_connections()

    def _wake_connections(self) -> None:
        for connection in self._connections:
            connection.report_load()

    def _lose(self, error: PilotfishError) -> None:
        logger.error("the engine of replica %s is lost: %s", self.welcome.replica_id, error)
        self._lost.set_result(error)
        for connection in self._connections:
            connection.fail(self._end_error)
