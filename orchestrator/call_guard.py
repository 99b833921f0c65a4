"""Checks before the message of a gRPC call is taken: whose call it is, and whether there is room for the message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pool

from orchestrator.api_security import Authenticator, client_id_of, host_of
from orchestrator.requests.call_messages import CallMessages, Context
from orchestrator.requests.identity import identified
from pilotfish.errors import AuthenticationError, InvalidRequestError, ResourceExhaustedError
from pilotfish.rpc.status import aborting_on_error
from pilotfish.rpc.wire_items import check_items
from pilotfish.security.allowance import Allowance
from pilotfish.security.link_token import AUTHORIZATION_KEY
from pilotfish.structured.bounds import MAX_JSON_ITEMS

Behavior = Callable[[Any, Context], Awaitable[Any]]
Decode = Callable[[bytes], Awaitable[Any]]

_MAX_KEYLESS_STREAMS = 1024
"""Streams of health and reflection at once: they last for as long as their clients like."""
_MAX_ASKED = 1000
"""Messages of one stream."""


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in grpc-stubs alone
    """Guards all calls of a server. A call of the service without a known key ends before any of its message is read;
    health and reflection need none."""

    def __init__(
        self,
        service_name: str,
        authenticator: Authenticator,
        messages: CallMessages,
        keyless_messages: CallMessages,
    ) -> None:
        """messages: takes those of the service's calls. keyless_messages: takes those of health and reflection."""
        self._prefix = f"/{service_name}/"
        self._authenticator = authenticator
        self._messages = messages
        self._keyless_messages = keyless_messages
        self._keyless_streams = asyncio.BoundedSemaphore(_MAX_KEYLESS_STREAMS)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        allowance, messages = None, self._keyless_messages
        if handler_call_details.method.startswith(self._prefix):
            messages = self._messages
            metadata = {key: str(value) for key, value in handler_call_details.invocation_metadata or ()}
            try:
                allowance = self._authenticator.allowance(metadata.get(AUTHORIZATION_KEY, ""))
            except AuthenticationError as error:
                return grpc.stream_stream_rpc_method_handler(_refusing(str(error)))
        decode = _decoder(handler.request_deserializer, handler_call_details.method)
        # gRPC reads the one message of a unary call before any code of ours runs, and waits for it for ever.
        behavior = handler.unary_stream or handler.unary_unary
        run = _answering_all if behavior is None else _answering_one
        behavior = run(behavior or handler.stream_stream, _Messages(messages, decode, allowance))
        if messages is self._keyless_messages and handler.response_streaming:
            behavior = _bounded(behavior, self._keyless_streams)
        return grpc.stream_stream_rpc_method_handler(
            behavior,
            response_serializer=handler.response_serializer,
        )


@dataclass(frozen=True)
class _Messages:
    """How the messages of a call are taken."""

    messages: CallMessages
    decode: Decode
    allowance: Allowance | None

    def next(self, context: Context) -> contextlib.AbstractAsyncContextManager[Any]:
        """See `CallMessages.taking`: without keys the turns are the connections', and the memory is the hosts'."""
        peer = context.peer()
        client_id, holder = client_id_of(self.allowance, "", peer), client_id_of(self.allowance, "", host_of(peer))
        return self.messages.taking(context, self.decode, client_id=client_id, holder=holder)


def _answering_one(behavior: Behavior, messages: _Messages) -> Behavior:
    async def run(_: Any, context: Context) -> None:
        async with _refusing_on_error(context), messages.next(context) as message:
            if message is None:
                raise InvalidRequestError("the call has no message")
            if (answer := await behavior(message, context)) is not None:
                await context.write(answer)

    return run


def _answering_all(behavior: Any, messages: _Messages) -> Behavior:
    async def asked_of(context: Context) -> AsyncGenerator[Any, None]:
        for _ in range(_MAX_ASKED):
            async with messages.next(context) as message:
                if message is None:
                    return
                yield message
        raise ResourceExhaustedError(f"a stream may have {_MAX_ASKED} messages; open another one")

    async def run(_: Any, context: Context) -> None:
        async with _refusing_on_error(context), contextlib.aclosing(asked_of(context)) as asked:
            async for answer in behavior(asked, context):
                await context.write(answer)

    return run


def _bounded(behavior: Behavior, streams: asyncio.BoundedSemaphore) -> Behavior:
    async def run(request: Any, context: Context) -> None:
        if streams.locked():
            async with _refusing_on_error(context):
                raise ResourceExhaustedError("too many streams of health and reflection are open; try again later")
        async with streams:
            await behavior(request, context)

    return run


def _decoder(deserialize: Callable[[bytes], Any], method: str) -> Decode:
    """Refuses messages of too many items before they are decoded."""
    kind = descriptor_pool.Default().FindMethodByName(method[1:].replace("/", ".")).input_type

    async def decode(data: bytes) -> Any:
        await check_items(data, kind, MAX_JSON_ITEMS)
        return deserialize(data)

    return decode


def _refusing(message: str) -> Behavior:
    async def run(_: Any, context: Context) -> None:
        async with _refusing_on_error(context):
            raise AuthenticationError(message)

    return run


@contextlib.asynccontextmanager
async def _refusing_on_error(context: Context) -> AsyncIterator[None]:
    """As `aborting_on_error`, for a call that may have no identity yet: it gets one when the block raises."""
    try:
        async with aborting_on_error(context):
            try:
                yield
            except grpc.aio.AbortError:
                raise
            except Exception:
                if not context.trailing_metadata():
                    identified(context)
                raise
    except grpc.aio.AbortError as aborted:
        # gRPC keeps it with the call, and its traceback has the call: refused ones would stay until a collection, which
        # then held the loop for a second (measured, of some thousands).
        aborted.__traceback__ = aborted.__context__ = None
