"""Checks before the message of a gRPC call is taken: whose call it is, and whether there is room for the message."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from orchestrator.api_security import Authenticator, client_id_of, host_of
from orchestrator.requests.call_messages import CallMessages, Context
from orchestrator.requests.identity import identified
from pilotfish.errors import AuthenticationError, InvalidRequestError
from pilotfish.rpc.status import aborting_on_error
from pilotfish.security.allowance import Allowance
from pilotfish.security.link_token import AUTHORIZATION_KEY

Behavior = Callable[[Any, Context], Awaitable[Any]]
Decode = Callable[[bytes], Any]


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in grpc-stubs alone
    """Guards all calls of a server. A call of the service without a known key ends before any of its message is read;
    health and reflection need none."""

    def __init__(self, service_name: str, authenticator: Authenticator, messages: CallMessages) -> None:
        self._prefix = f"/{service_name}/"
        self._authenticator = authenticator
        self._messages = messages

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        allowance = None
        if handler_call_details.method.startswith(self._prefix):
            metadata = {key: str(value) for key, value in handler_call_details.invocation_metadata or ()}
            try:
                allowance = self._authenticator.allowance(metadata.get(AUTHORIZATION_KEY, ""))
            except AuthenticationError as error:
                return grpc.stream_stream_rpc_method_handler(_refusing(str(error)))
        # gRPC reads the one message of a unary call before any code of ours runs, and waits for it for ever.
        decode, behavior = handler.request_deserializer, handler.unary_stream or handler.unary_unary
        run = self._answering_all if behavior is None else self._answering_one
        return grpc.stream_stream_rpc_method_handler(
            run(behavior or handler.stream_stream, decode, allowance), response_serializer=handler.response_serializer
        )

    def _answering_one(self, behavior: Behavior, decode: Decode, allowance: Allowance | None) -> Behavior:
        async def run(_: Any, context: Context) -> None:
            async with _refusing_on_error(context), self._message(context, decode, allowance) as message:
                if message is None:
                    raise InvalidRequestError("the call has no message")
                if (answer := await behavior(message, context)) is not None:
                    await context.write(answer)

        return run

    def _answering_all(self, behavior: Any, decode: Decode, allowance: Allowance | None) -> Behavior:
        async def messages(context: Context) -> AsyncGenerator[Any, None]:
            is_over = False
            while not is_over:
                async with self._message(context, decode, allowance) as message:
                    is_over = message is None
                    if not is_over:
                        yield message

        async def run(_: Any, context: Context) -> None:
            async with _refusing_on_error(context), contextlib.aclosing(messages(context)) as asked:
                async for answer in behavior(asked, context):
                    await context.write(answer)

        return run

    def _message(
        self, context: Context, decode: Decode, allowance: Allowance | None
    ) -> contextlib.AbstractAsyncContextManager[Any]:
        """See `CallMessages.taking`: without keys the turns are the connections', and the memory is the hosts'."""
        peer = context.peer()
        client_id, holder = client_id_of(allowance, "", peer), client_id_of(allowance, "", host_of(peer))
        return self._messages.taking(context, decode, client_id=client_id, holder=holder)


def _refusing(message: str) -> Behavior:
    async def run(_: Any, context: Context) -> None:
        async with _refusing_on_error(context):
            raise AuthenticationError(message)

    return run


@contextlib.asynccontextmanager
async def _refusing_on_error(context: Context) -> AsyncIterator[None]:
    """As `aborting_on_error`, for a call that has no identity yet: it gets one when the block raises."""
    try:
        async with aborting_on_error(context):
            try:
                yield
            except grpc.aio.AbortError:
                raise
            except Exception:
                identified(context)
                raise
    except grpc.aio.AbortError as aborted:
        # gRPC keeps it with the call, and its traceback has the call: refused ones would stay until a collection, which
        # then held the loop for a second (measured, of some thousands).
        aborted.__traceback__ = aborted.__context__ = None
