"""Before the message of a gRPC call is taken: whose call it is, and how long the message may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from orchestrator.api_security import Authenticator
from orchestrator.requests.identity import identified
from pilotfish.errors import AuthenticationError, DeadlineExceededError, InvalidRequestError
from pilotfish.rpc.status import aborting_on_error
from pilotfish.security.link_token import AUTHORIZATION_KEY

Context = grpc.aio.ServicerContext[Any, Any]
Behavior = Callable[[Any, Context], Awaitable[Any]]


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in grpc-stubs alone
    """Of the calls of one service. A call without a key that is known ends before any of its message is read."""

    def __init__(self, service_name: str, authenticator: Authenticator, read_timeout_s: float) -> None:
        self._prefix = f"/{service_name}/"
        self._authenticator = authenticator
        self._read_timeout_s = read_timeout_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._prefix):
            return handler
        metadata = {key: str(value) for key, value in handler_call_details.invocation_metadata or ()}
        try:
            self._authenticator.allowance(metadata.get(AUTHORIZATION_KEY, ""))
        except AuthenticationError as error:
            return grpc.stream_stream_rpc_method_handler(_refusing(error))
        # gRPC reads the one message of a unary call before any code of ours runs, and waits for it for ever.
        return grpc.stream_stream_rpc_method_handler(
            self._reading(handler.unary_stream or handler.unary_unary, handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    def _reading(self, behavior: Behavior, decode: Callable[[bytes], Any]) -> Behavior:
        async def run(_: Any, context: Context) -> None:
            async with _refusing_on_error(context):
                data = await self._message(context)
                try:
                    message = decode(data)
                except DecodeError:
                    raise InvalidRequestError("the message cannot be decoded") from None
            answer = await behavior(message, context)
            if answer is not None:
                await context.write(answer)

        return run

    async def _message(self, context: Context) -> bytes:
        try:
            async with asyncio.timeout(self._read_timeout_s):
                message = await context.read()
        except TimeoutError:
            raise DeadlineExceededError(
                f"the request was not sent within {self._read_timeout_s:g} s (security.public.request_read_timeout_s)"
            ) from None
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # absent from grpc-stubs
            raise InvalidRequestError("the call has no message")
        return bytes(message)


def _refusing(error: AuthenticationError) -> Behavior:
    async def run(_: Any, context: Context) -> None:
        async with _refusing_on_error(context):
            raise error

    return run


@contextlib.asynccontextmanager
async def _refusing_on_error(context: Context) -> AsyncIterator[None]:
    """As `aborting_on_error`, of a call that has no identity yet: it gets one when the block raises."""
    async with aborting_on_error(context):
        try:
            yield
        except Exception:
            identified(context)
            raise
