"""What the two streams have in common: frames that carry items, behind one interface.

Clients and servers of the streams are written once, over a FrameCodec; target_frames and draft_frames
say what an item is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import grpc
import grpc.aio

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import Command, Event
from pilotfish.rpc.conversion import load_from_proto, load_to_proto
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


class FrameCodec(ABC):
    """One service's frames. Stateless."""

    service_name: ClassVar[str]
    request_frame_type: ClassVar[type[Any]]
    response_frame_type: ClassVar[type[Any]]

    @abstractmethod
    def request(self, command: Command) -> Request:
        """Raises TypeError for a command of another service, ValueError for a number out of range."""

    @abstractmethod
    def command(self, request: Request) -> Command:
        """Raises InvalidRequestError."""

    @abstractmethod
    def response(self, event: Event) -> Response | None:
        """None for an event that this stream does not carry."""

    @abstractmethod
    def event(self, response: Response) -> Event:
        """Raises InvalidRequestError."""

    def open_call(self, channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall[RequestFrame, ResponseFrame]:
        """Begin a Connect call."""
        connect: Any = channel.stream_stream(
            f"/{self.service_name}/Connect",
            request_serializer=self.request_frame_type.SerializeToString,
            response_deserializer=self.response_frame_type.FromString,
        )
        call: grpc.aio.StreamStreamCall[RequestFrame, ResponseFrame] = connect()
        return call

    def add_to_server(self, connect: Connect, server: grpc.aio.Server) -> None:
        """Serve Connect calls with `connect`."""
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
        kind = request.WhichOneof("item")
        if kind is None:
            raise InvalidRequestError("a request holds no item that this version knows")
        sequence_id: int = getattr(request, kind).sequence_id
        return sequence_id

    def request_frame(self, requests: Sequence[Request], hello: Hello | None = None) -> RequestFrame:
        return self.request_frame_type(requests=requests, hello=hello_to_proto(hello) if hello else None)

    def hello(self, frame: RequestFrame) -> Hello | None:
        return hello_from_proto(frame.hello) if frame.HasField("hello") else None

    def response_frame(
        self, responses: Sequence[Response], load: LoadReport | None = None, welcome: Welcome | None = None
    ) -> ResponseFrame:
        return self.response_frame_type(
            responses=responses,
            load=load_to_proto(load) if load else None,
            welcome=welcome_to_proto(welcome) if welcome else None,
        )

    def welcome(self, frame: ResponseFrame) -> Welcome | None:
        return welcome_from_proto(frame.welcome) if frame.HasField("welcome") else None

    def load(self, frame: ResponseFrame) -> LoadReport | None:
        return load_from_proto(frame.load) if frame.HasField("load") else None

    def events(self, frame: ResponseFrame) -> list[Event]:
        """Raises InvalidRequestError."""
        return [self.event(response) for response in frame.responses]
