"""The listening end of one multiplexed stream: one peer, its sequences, its outgoing queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

import grpc.aio
import msgspec
from google.protobuf.message import DecodeError

from pilotfish.errors import InvalidRequestError, PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import CloseSequence, Command, Event, OpenSequence, SequenceError
from pilotfish.rpc.frames import EOF, FrameCodec, FrameQueue, Request, RequestFrame, Response, ResponseFrame
from pilotfish.rpc.handshake import Hello, Welcome, check_handshake
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.rpc.replica.sequence_table import OpenEntry, SequenceTable
from pilotfish.rpc.replica.validation import check_command
from pilotfish.step_table import StepTable
from pilotfish.types import LoadReport, SequenceErrorCode

MAX_UNSENT_ITEMS = 8192
"""Results that wait for a peer that does not read; then it is cut off and its sequences are freed."""
MAX_ITEMS_PER_FRAME = 512
HELLO_TIMEOUT_S = 5.0
"""A peer that dials says its hello at once."""

Context = grpc.aio.ServicerContext[RequestFrame, ResponseFrame]


class ServedReplica(Protocol):
    """What a connection needs of the server that it belongs to."""

    codec: FrameCodec
    welcome: Welcome
    observer: ReplicaObserver
    table: SequenceTable[StreamConnection]

    @property
    def load(self) -> LoadReport:
        """The load that is reported to peers."""

    def welcome_for(self, tokenizer_fingerprint: str) -> Welcome:
        """The welcome for a peer with this tokenizer; the common one where it is not served, or names none."""

    def assign(self, sequence_id: int, tokenizer_fingerprint: str) -> None:
        """A sequence with the engine's id, which is about to be opened, is one of such a peer's."""

    def send(self, commands: Sequence[Command]) -> None:
        """Hand commands, with the engine's ids, to the engine. Raises UnavailableError once it is gone."""


class StreamConnection:
    """See the module. Owned by the handler of its call."""

    def __init__(self, replica: ServedReplica, context: Context) -> None:
        self._replica = replica
        self._codec = replica.codec
        self._context = context
        self._entries: dict[int, OpenEntry[StreamConnection]] = {}
        self._kept_ids: dict[int, int] = {}
        """The engine's ids of ended sequences by the peer's: their close settles whether their text is kept."""
        self._unsent: FrameQueue[ResponseFrame] = FrameQueue(
            self._codec.response_frame_type, max_items_per_frame=MAX_ITEMS_PER_FRAME, max_items=MAX_UNSENT_ITEMS
        )
        self._latest: dict[int, Response] = {}
        """The latest response of each sequence, among those of the frame that is being filled."""
        self._latest_frame = self._unsent.frame
        self._failure: asyncio.Future[PilotfishError] = asyncio.get_running_loop().create_future()
        self._sent_table = StepTable()
        """The last one that was sent."""
        self._welcome = replica.welcome
        """The welcome that the peer gets."""
        self.peer = ""
        """What the peer calls itself."""

    async def serve(self) -> None:
        """Shake hands, then serve until the peer leaves. Frees its sequences in any case.

        Raises: PilotfishError when the stream must end with a status.
        """
        self._accept(await self._read_hello())
        await self._context.write(self._codec.welcome_frame(self._welcome, self._news()))
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            await asyncio.wait((reader, writer, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._release()
            reader.cancel()
            writer.cancel()
            outcomes = await asyncio.gather(reader, writer, return_exceptions=True)
        if self._failure.done():
            raise self._failure.result()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def fail(self, error: PilotfishError) -> None:
        """End the stream with a status. Idempotent."""
        if not self._failure.done():
            self._failure.set_result(error)

    def deliver(self, entry: OpenEntry[StreamConnection], event: Event) -> None:
        """Queue an event of the engine for the peer."""
        if entry.ends_with(event):
            self._forget(entry)
            if isinstance(event, SequenceError):
                # The engine may hold the sequence still; closing is idempotent.
                self._close_in_engine([entry.engine_sequence_id])
            elif entry.is_learned_from:
                self._kept_ids[entry.peer_sequence_id] = entry.engine_sequence_id
        entry.has_events = entry.has_events or not isinstance(event, SequenceError)
        self._queue(event, entry.peer_sequence_id)

    def report_load(self) -> None:
        """Send a frame with the current load, and what is queued, soon."""
        self._unsent.make_due()

    # Incoming.

    async def _read_hello(self) -> Hello:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                frame = await self._read_frame()
        except TimeoutError:
            raise InvalidRequestError(f"no Hello came within {HELLO_TIMEOUT_S:g} s") from None
        hello = None if frame is None else self._codec.hello(frame)
        if hello is None:
            raise InvalidRequestError("the first frame of a stream must hold a Hello")
        return hello

    def _accept(self, hello: Hello) -> None:
        self.peer = hello.peer or self._context.peer()
        self._welcome = self._replica.welcome_for(hello.tokenizer_fingerprint)
        check_handshake(hello, self._welcome)

    async def _read(self) -> None:
        while (frame := await self._read_frame()) is not None:
            commands: list[Command] = []
            try:
                for request in frame.requests:
                    command = self._take(request)
                    if command is not None:
                        commands.append(command)
            finally:
                # Also before a request that ends the stream: a sequence that was closed here is to be closed there.
                if commands:
                    self._replica.send(commands)

    async def _read_frame(self) -> RequestFrame | None:
        """The next frame; None when the peer has said its last."""
        try:
            frame = await self._context.read()
        except DecodeError:
            raise InvalidRequestError(f"a frame is no {self._codec.request_frame_type.__name__}") from None
        return None if frame is EOF else frame

    def _take(self, request: Request) -> Command | None:
        """The command with the engine's sequence id; None if it was answered here."""
        sequence_id = self._codec.sequence_id(request)
        entry = self._entries.get(sequence_id)
        try:
            command = self._codec.command(request, sequence_id if entry is None else entry.engine_sequence_id)
            check_command(command, self._welcome.model, self._welcome.limits)
        except InvalidRequestError as error:
            if request.WhichOneof("item") == "prepared":
                return None  # of no use, and nothing that the sequence should suffer for
            self._refuse(sequence_id, SequenceErrorCode.INVALID, str(error), _base_length(request))
            return None
        if isinstance(command, OpenSequence):
            return self._open(command, sequence_id)
        if isinstance(command, CloseSequence):
            if entry is None:
                kept_id = self._kept_ids.pop(sequence_id, None)
                return None if kept_id is None else msgspec.structs.replace(command, sequence_id=kept_id)
            self._forget(entry)
        elif entry is None:
            message = f"sequence {sequence_id} is not open here: open it with all committed tokens"
            self._refuse(sequence_id, SequenceErrorCode.UNKNOWN_SEQUENCE, message, command.base_length)
            return None
        return command

    def _open(self, command: OpenSequence, sequence_id: int) -> Command | None:
        replica = self._replica
        limit = replica.welcome.limits.max_sequences
        if sequence_id in self._entries:
            self._refuse(sequence_id, SequenceErrorCode.INVALID, f"sequence {sequence_id} is open already")
        elif replica.load.draining:
            message = f"replica {replica.welcome.replica_id} is draining: open the sequence elsewhere"
            self._refuse(sequence_id, SequenceErrorCode.UNAVAILABLE, message)
        elif len(replica.table) >= limit:
            message = f"all {limit} sequences of the replica are in use (max_sequences): try again later"
            self._refuse(sequence_id, SequenceErrorCode.RESOURCE_EXHAUSTED, message)
        else:
            entry = self._entries[sequence_id] = replica.table.open(self, sequence_id)
            entry.is_learned_from = bool(command.learn_as)
            command = msgspec.structs.replace(command, sequence_id=entry.engine_sequence_id)
            replica.assign(entry.engine_sequence_id, self._welcome.model.tokenizer_fingerprint)
            replica.observer.opened(command)
            return command
        return None

    def _refuse(self, sequence_id: int, code: SequenceErrorCode, message: str, base_length: int = 0) -> None:
        self._queue(SequenceError(sequence_id, code, message, base_length), sequence_id)

    # Outgoing.

    def _queue(self, event: Event, sequence_id: int) -> None:
        """sequence_id: the peer's."""
        unsent = self._unsent
        if self._latest_frame is not unsent.frame:
            self._latest_frame = unsent.frame
            self._latest = {}
        latest = self._latest.get(sequence_id)
        # While frames wait for the peer, the items in them grow instead of their number.
        if (latest is not None and self._codec.extend(latest, event)) or not self._codec.carries(event):
            return
        if unsent.is_full:
            self.fail(ResourceExhaustedError(f"{self.peer} does not read: {MAX_UNSENT_ITEMS} results wait for it"))
            return
        self._latest[sequence_id] = self._codec.add_response(unsent.frame, event, sequence_id)
        unsent.count()

    async def _write(self) -> None:
        while True:
            frame = await self._unsent.next()
            self._codec.set_load(frame, self._news())
            await self._context.write(frame)

    def _news(self) -> LoadReport:
        """The load, for the next frame: without the step table if the peer knows it."""
        load = self._replica.load
        if load.step_table == self._sent_table:
            return msgspec.structs.replace(load, step_table=StepTable())
        self._sent_table = load.step_table
        return load

    # The end.

    def _forget(self, entry: OpenEntry[StreamConnection]) -> None:
        self._entries.pop(entry.peer_sequence_id, None)
        self._replica.table.remove(entry)
        self._replica.observer.closed(entry.engine_sequence_id)

    def _release(self) -> None:
        entries = list(self._entries.values())
        for entry in entries:
            self._forget(entry)
        self._close_in_engine([*(entry.engine_sequence_id for entry in entries), *self._kept_ids.values()])
        self._kept_ids.clear()

    def _close_in_engine(self, engine_ids: Sequence[int]) -> None:
        # An engine that is gone holds nothing.
        with contextlib.suppress(UnavailableError):
            self._replica.send([CloseSequence(engine_id) for engine_id in engine_ids])


def _base_length(request: Request) -> int:
    """The committed length that a request stands on; 0 for kinds that state none."""
    item = getattr(request, request.WhichOneof("item"))
    length: int = getattr(item, "base_length", 0)
    return length
