"""What the two streams have in common: frames that carry items, behind one interface.

Clients and servers of the streams are written once, over a FrameCodec; target_frames and draft_frames
say what an item is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import grpc
import grpc.aio

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import Command, Event
from pilotfish.rpc.conversion import (
    close_from_proto,
    error_from_proto,
    fill_close,
    fill_error,
    fill_open,
    load_from_proto,
    load_to_proto,
    open_from_proto,
)
from pilotfish.rpc.handshake import (
    Hello,
    Welcome,
    hello_from_proto,
    hello_to_proto,
    welcome_from_proto,
    welcome_to_proto,
)
from pilotfish.types import LoadReport

RequestFrame: TypeAlias = Any
"""TargetRequestFrame or DraftRequestFrame."""
ResponseFrame: TypeAlias = Any
Request: TypeAlias = Any
"""TargetRequest or DraftRequest: one item."""
Response: TypeAlias = Any

Service = Literal["target", "draft"]

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # absent from grpc-stubs
"""What reading a call gives when the other side has said its last."""

Connect = Callable[[Any, grpc.aio.ServicerContext[RequestFrame, ResponseFrame]], Awaitable[None]]
"""The handler of the Connect method: (request iterator, context)."""


class Item(NamedTuple):
    """One kind of command or event."""

    name: str
    """Name of the field in the proto of all kinds."""
    fill: Callable[..., None]
    """Write one into an empty proto: (proto, command), or (proto, event, the peer's sequence id)."""
    read: Callable[..., Any]
    """(proto, our sequence id) of a command, (proto) of an event. Raises InvalidRequestError."""


OPEN = Item("open", fill_open, open_from_proto)
CLOSE = Item("close", fill_close, close_from_proto)
ERROR = Item("error", fill_error, error_from_proto)


class FrameCodec:
    """One service's frames: a subclass says which items there are. Stateless."""

    service_name: ClassVar[str]
    service: ClassVar[Service]
    request_frame_type: ClassVar[type[Any]]
    response_frame_type: ClassVar[type[Any]]

    requests: ClassVar[Mapping[type, Item]]
    """Items that the service is asked."""
    responses: ClassVar[Mapping[type, Item]]
    """Items that it sends to its peers."""

    def __init__(self) -> None:
        self._commands = {item.name: item.read for item in self.requests.values()}
        self._events = {item.name: item.read for item in self.responses.values()}

    def command(self, request: Request, sequence_id: int) -> Command:
        """The command, on the sequence that is called sequence_id here. Raises InvalidRequestError."""
        kind, item = _item_of(request, "request")
        command: Command = self._commands[kind](item, sequence_id)
        return command

    def carries(self, event: Event) -> bool:
        """Whether this stream sends such an event to its peer."""
        return type(event) in self.responses

    def extend(self, response: Response, event: Event) -> bool:  # noqa: ARG002
        """Put an event into the item of the one before it, where that can hold both; whether it could."""
        return False

    def event(self, response: Response) -> Event:
        """Raises InvalidRequestError."""
        kind, item = _item_of(response, "response")
        event: Event = self._events[kind](item)
        return event

    def open_call(
        self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...] = ()
    ) -> grpc.aio.StreamStreamCall[RequestFrame, ResponseFrame]:
        connect: Any = channel.stream_stream(
            f"/{self.service_name}/Connect",
            request_serializer=self.request_frame_type.SerializeToString,
            response_deserializer=self.response_frame_type.FromString,
        )
        call: grpc.aio.StreamStreamCall[RequestFrame, ResponseFrame] = connect(metadata=metadata)
        return call

    def add_to_server(self, connect: Connect, server: grpc.aio.Server) -> None:
        handler = grpc.stream_stream_rpc_method_handler(
            connect,
            request_deserializer=self.request_frame_type.FromString,
            response_serializer=self.response_frame_type.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(self.service_name, {"Connect": handler}),)
        )

    def sequence_id(self, request: Request) -> int:
        """Raises InvalidRequestError when the request holds no item that this version knows."""
        sequence_id: int = _item_of(request, "request")[1].sequence_id
        return sequence_id

    def add_request(self, frame: RequestFrame, command: Command) -> None:
        """Append a command to a frame. Raises TypeError for one of another service, ValueError for a number out of
        range; the frame is then unchanged."""
        item = self.requests.get(type(command))
        if item is None:
            raise TypeError(f"a {self.service} replica takes no {type(command).__name__}")
        try:
            item.fill(getattr(frame.requests.add(), item.name), command)
        except ValueError:
            del frame.requests[-1]
            raise

    def add_response(self, frame: ResponseFrame, event: Event, sequence_id: int) -> Response:
        """Append an event that the stream carries to a frame, as one of the peer's sequence_id; returns its item."""
        response, item = frame.responses.add(), self.responses[type(event)]
        item.fill(getattr(response, item.name), event, sequence_id)
        return response

    def hello_frame(self, hello: Hello) -> RequestFrame:
        """The first frame of the dialling end."""
        return self.request_frame_type(hello=hello_to_proto(hello))

    def hello(self, frame: RequestFrame) -> Hello | None:
        return hello_from_proto(frame.hello) if frame.HasField("hello") else None

    def welcome_frame(self, welcome: Welcome, load: LoadReport) -> ResponseFrame:
        """The first frame of the listening end."""
        return self.response_frame_type(welcome=welcome_to_proto(welcome), load=load_to_proto(load))

    def set_load(self, frame: ResponseFrame, load: LoadReport) -> None:
        frame.load.CopyFrom(load_to_proto(load))

    def welcome(self, frame: ResponseFrame) -> Welcome | None:
        return welcome_from_proto(frame.welcome) if frame.HasField("welcome") else None

    def load(self, frame: ResponseFrame) -> LoadReport | None:
        return load_from_proto(frame.load) if frame.HasField("load") else None

    def events(self, frame: ResponseFrame) -> list[Event]:
        """Raises InvalidRequestError."""
        return [self.event(response) for response in frame.responses]


def _item_of(message: Request | Response, name: str) -> tuple[str, Any]:
    """The kind of the item, and the item. Raises InvalidRequestError."""
    kind = message.WhichOneof("item")
    if kind is None:
        raise InvalidRequestError(f"a {name} holds no item that this version knows")
    return kind, getattr(message, kind)


FrameT = TypeVar("FrameT")


class FrameQueue(Generic[FrameT]):
    """Frames in order; the last one is still being filled. For one reader, on one event loop.

    To put an item: check `is_full`, add it to `frame`, call `count`.
    """

    def __init__(self, new_frame: Callable[[], FrameT], *, max_items_per_frame: int, max_items: int) -> None:
        """max_items_per_frame: items of ordinary size; a frame ends sooner with bigger ones."""
        self._new_frame = new_frame
        self._max_items_per_frame = max_items_per_frame
        self._max_items = max_items
        self._complete: deque[tuple[FrameT, int]] = deque()
        self._num_complete_items = 0
        self._num_frame_items = self._frame_size = 0
        self._is_due = asyncio.Event()
        self.frame = new_frame()
        """The frame that takes the next item."""

    def __len__(self) -> int:
        """Items that wait."""
        return self._num_complete_items + self._num_frame_items

    @property
    def is_full(self) -> bool:
        return len(self) >= self._max_items

    def count(self, size: int = 1) -> None:
        """An item was added to `frame`, as big as that many ordinary ones."""
        self._num_frame_items += 1
        self._frame_size += size
        if self._frame_size >= self._max_items_per_frame:
            self._complete.append((self.frame, self._num_frame_items))
            self._num_complete_items += self._num_frame_items
            self._start_frame()
        self._is_due.set()

    def make_due(self) -> None:
        """Let `next` return soon, if need be with an empty frame."""
        self._is_due.set()

    async def next(self) -> FrameT:
        """The oldest frame, once it holds an item or `make_due` was called."""
        await self._is_due.wait()
        if self._complete:
            frame, num_items = self._complete.popleft()
            self._num_complete_items -= num_items
        else:
            frame = self.frame
            self._start_frame()
        if len(self) == 0:
            self._is_due.clear()
        return frame

    def clear(self) -> None:
        """Drop what waits."""
        self._complete.clear()
        self._num_complete_items = 0
        self._start_frame()
        self._is_due.clear()

    def _start_frame(self) -> None:
        self.frame = self._new_frame()
        self._num_frame_items = self._frame_size = 0
