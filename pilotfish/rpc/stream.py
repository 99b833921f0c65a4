"""The dialling end of a multiplexed stream: one bidirectional call for all sequences on a replica."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import MappingProxyType

import grpc.aio

from pilotfish.errors import (
    DeadlineExceededError,
    HandshakeError,
    InternalError,
    InvalidRequestError,
    PilotfishError,
    ResourceExhaustedError,
    UnavailableError,
)
from pilotfish.messages import CloseSequence, Command, Event, OpenSequence
from pilotfish.rpc.draft_frames import DraftFrames
from pilotfish.rpc.frames import EOF, FrameCodec, FrameQueue, RequestFrame, ResponseFrame, Service
from pilotfish.rpc.handshake import Hello, Welcome, check_handshake
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.rpc.status import CallStatus
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.types import Limits, LoadReport, ModelInfo

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
"""A replica that accepts connections answers a handshake in milliseconds."""
MAX_UNSENT_ITEMS = 8192
"""Items that wait for a replica that does not read."""
MAX_ITEMS_PER_FRAME = 256
TOKENS_PER_ITEM = 256
"""A prompt counts as an item for each so many tokens: a failover opens many long ones at once, and a frame has to
stay far below the message limit."""

CODECS: MappingProxyType[Service, FrameCodec] = MappingProxyType({"target": TargetFrames(), "draft": DraftFrames()})

Call = grpc.aio.StreamStreamCall[RequestFrame, ResponseFrame]
OnEvents = Callable[[list[Event]], None]
OnLoad = Callable[[LoadReport], None]
OnLost = Callable[[PilotfishError], None]


class MuxStream:
    """One stream to one replica. Made by `connect`; used from one event loop.

    The callbacks run on the loop, must not block, and never run after `close`. `on_lost` runs at most
    once, with the reason.
    """

    def __init__(
        self,
        address: str,
        codec: FrameCodec,
        channel: grpc.aio.Channel,
        call: Call,
        status: CallStatus,
        welcome: Welcome,
        first_frame: ResponseFrame,
        callbacks: tuple[OnEvents, OnLoad, OnLost],
    ) -> None:
        self.welcome = welcome
        self._address = address
        self._codec = codec
        self._channel = channel
        self._call = call
        self._status = status
        self._on_events, self._on_load, self._on_lost = callbacks
        self._unsent: FrameQueue[RequestFrame] = FrameQueue(
            codec.request_frame_type, max_items_per_frame=MAX_ITEMS_PER_FRAME, max_items=MAX_UNSENT_ITEMS
        )
        self._loss: PilotfishError | None = None
        self._reader = asyncio.create_task(self._read(first_frame))
        self._writer = asyncio.create_task(self._write())

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        service: Service,
        hello: Hello,
        on_events: OnEvents,
        on_load: OnLoad,
        on_lost: OnLost,
        security: LinkSecurity = OPEN_LINKS,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> MuxStream:
        """Dial host:port and shake hands.

        Raises: HandshakeError when the two sides do not fit; AuthenticationError when the replica does not know us;
        UnavailableError, DeadlineExceededError.
        """
        codec = CODECS[service]
        channel = security.open_channel(address)
        try:
            call = codec.open_call(channel, security.metadata)
            status = CallStatus(call)
            async with asyncio.timeout(timeout_s):
                welcome, frame = await _shake_hands(codec, call, hello)
            check_handshake(hello, welcome)
            return cls(address, codec, channel, call, status, welcome, frame, (on_events, on_load, on_lost))
        except grpc.aio.AioRpcError as error:
            await channel.close(None)
            raise status.error(error, _peer(service, address)) from None
        except TimeoutError:
            await channel.close(None)
            message = f"{_peer(service, address)} did not answer the handshake within {timeout_s:g} s"
            raise DeadlineExceededError(message) from None
        except BaseException:
            await channel.close(None)
            raise

    @property
    def model(self) -> ModelInfo:
        return self.welcome.model

    @property
    def limits(self) -> Limits:
        return self.welcome.limits

    def send(self, command: Command) -> None:
        """Queue a command; what is queued together travels in one frame. Never blocks.

        Raises: UnavailableError once the stream is lost or closed; ResourceExhaustedError when the
        replica does not read; InvalidRequestError when a number does not fit its field.
        """
        if self._loss is not None:
            raise UnavailableError(str(self._loss))
        # What is not closed would be held there for as long as the stream lives.
        if self._unsent.is_full and not isinstance(command, CloseSequence):
            raise ResourceExhaustedError(f"{self._name} does not read: {MAX_UNSENT_ITEMS} items wait for it")
        try:
            self._codec.add_request(self._unsent.frame, command)
        except ValueError as error:
            raise InvalidRequestError(f"a {type(command).__name__} cannot be sent: {error}") from None
        self._unsent.count(_size(command))

    async def close(self) -> None:
        """End the stream; the replica releases its sequences. Idempotent."""
        self._loss = self._loss or UnavailableError(f"the stream to {self._name} was closed")
        self._reader.cancel()
        self._writer.cancel()
        self._call.cancel()
        try:
            await asyncio.wait((self._reader, self._writer))
        finally:
            await self._channel.close(None)

    @property
    def _name(self) -> str:
        return f"replica {self.welcome.replica_id} at {self._address}"

    async def _read(self, frame: ResponseFrame | None) -> None:
        """Read frames from that of the handshake on: its load is the first."""
        try:
            while frame is not None:
                self._deliver(frame)
                frame = await _read_frame(self._call)
            raise UnavailableError(f"{self._name} ended the stream")
        except grpc.aio.AioRpcError as error:
            self._lose(self._status.error(error, self._name))
        except InvalidRequestError as error:
            self._lose(UnavailableError(f"{self._name} talks nonsense: {error}"))
        except PilotfishError as error:
            self._lose(error)
        except Exception:
            logger.exception("the reader of the stream to %s failed", self._name)
            self._lose(InternalError(f"the stream to {self._name} ended for a reason of our own; see the log"))

    def _deliver(self, frame: ResponseFrame) -> None:
        """Load first, so that whoever acts on events knows it."""
        events = self._codec.events(frame)
        load = self._codec.load(frame)
        if self._loss is None and load is not None:
            self._on_load(load)
        if self._loss is None and events:
            self._on_events(events)

    async def _write(self) -> None:
        try:
            while True:
                await self._call.write(await self._unsent.next())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call has ended; the reader learns why.
            return

    def _lose(self, reason: PilotfishError) -> None:
        if self._loss is None:
            self._loss = reason
            self._unsent.clear()
            self._writer.cancel()
            self._call.cancel()
            self._on_lost(reason)


def _size(command: Command) -> int:
    if not isinstance(command, OpenSequence):
        return 1
    return 1 + (len(command.prompt_token_ids) + len(command.output_token_ids)) // TOKENS_PER_ITEM


async def _shake_hands(codec: FrameCodec, call: Call, hello: Hello) -> tuple[Welcome, ResponseFrame]:
    """The welcome, and the frame that held it."""
    # A call that ended before the frame was out says why when it is read.
    with contextlib.suppress(asyncio.InvalidStateError):
        await call.write(codec.hello_frame(hello))
    try:
        frame = await _read_frame(call)
    except InvalidRequestError as error:
        raise HandshakeError(f"{codec.service_name} did not begin with a Welcome: {error}") from None
    if frame is None:
        raise UnavailableError(f"{codec.service_name} ended the stream before its Welcome")
    welcome = codec.welcome(frame)
    if welcome is None:
        raise HandshakeError(f"{codec.service_name} did not begin with a Welcome")
    return welcome, frame


async def _read_frame(call: Call) -> ResponseFrame | None:
    """The next frame; None when the other side has said its last. Raises InvalidRequestError for what is no frame."""
    frame = await call.read()
    if frame is None:  # grpc logs bytes that it cannot parse, and goes on
        raise InvalidRequestError("a frame is none that this version knows")
    return None if frame is EOF else frame


def _peer(service: Service, address: str) -> str:
    return f"{service} replica at {address}"
