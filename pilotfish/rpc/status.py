"""PilotfishError <-> gRPC status. Details are the error's message: never a traceback."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from pilotfish.errors import (
    AuthenticationError,
    DeadlineExceededError,
    HandshakeError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    PilotfishError,
    ResourceExhaustedError,
    UnavailableError,
    error_named,
    status_of,
)

logger = logging.getLogger(__name__)

KIND_KEY = "pilotfish-error"
"""Trailing metadata: the error's class, finer than its status code."""
RETRY_AFTER_KEY = "retry-after-ms"
"""Trailing metadata of a RESOURCE_EXHAUSTED: milliseconds after which trying again may succeed."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Trailing metadata for gRPC's own retries (proposal A6), where a client has configured a retry policy."""

_KINDS: dict[grpc.StatusCode, type[PilotfishError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: ModelNotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: HandshakeError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    # The address is that of another kind of server.
    grpc.StatusCode.UNIMPLEMENTED: HandshakeError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
}


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: PilotfishError) -> NoReturn:
    """End the call with the error's status, and what trailing metadata it has."""
    name, _ = status_of(error)
    metadata = (*context.trailing_metadata(), (KIND_KEY, type(error).__name__), *_retry_metadata(error))
    await context.abort(grpc.StatusCode[name], str(error), trailing_metadata=metadata)
    raise AssertionError("abort raises")


@asynccontextmanager
async def aborting_on_error(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """End the call with a status when the block raises. What is no PilotfishError is logged and sent as INTERNAL."""
    try:
        yield
    except PilotfishError as error:
        await abort(context, error)
    except (grpc.aio.AbortError, grpc.aio.InternalError):  # the latter: the client has left, nobody can be told
        raise
    except Exception:
        logger.exception("a call failed for a reason of our own")
        await abort(context, InternalError("internal error; see the server's log"))


def error_from_rpc(error: grpc.RpcError, peer: str = "") -> PilotfishError:
    """The PilotfishError that a call's status stands for. `peer` names the server in the message."""
    # RpcError has no methods in its declaration; every one that a call raises has these.
    call: Any = error
    code: grpc.StatusCode = call.code()
    details = call.details() or code.name.lower().replace("_", " ")
    message = f"{peer}: {details}" if peer else details
    metadata = {str(key): str(value) for key, value in call.trailing_metadata() or ()}
    kind = metadata.get(KIND_KEY)
    found = _KINDS.get(code, InternalError)(message) if kind is None else error_named(kind, message)
    retry_after_ms = metadata.get(RETRY_AFTER_KEY, "")
    if isinstance(found, ResourceExhaustedError) and retry_after_ms.isdecimal():
        found.retry_after_s = int(retry_after_ms) / 1000
    return found


def _retry_metadata(error: PilotfishError) -> tuple[tuple[str, str], ...]:
    if not isinstance(error, ResourceExhaustedError) or error.retry_after_s is None:
        return ()
    milliseconds = str(math.ceil(error.retry_after_s * 1000))
    return (RETRY_AFTER_KEY, milliseconds), (PUSHBACK_KEY, milliseconds)


T = TypeVar("T")


class CallStatus:
    """The status that the server gave a call. Made with the call, before anything is awaited.

    A frame that cannot be sent any more makes grpc.aio replace the server's status, which it knows by then, with
    INTERNAL, "Internal error from Core": about one call in a hundred of those that a server refuses at once.
    """

    def __init__(self, call: Any) -> None:
        self._received: grpc.RpcError | None = None
        """An error with the server's status; None: it said nothing yet."""
        call.add_done_callback(self._note)

    def error(self, error: grpc.RpcError, peer: str) -> PilotfishError:
        """What the call ended with that has raised `error`. `peer` names the server in the message."""
        ended: Any = self._received or error
        if ended.code() is grpc.StatusCode.OK:
            return UnavailableError(f"{peer} ended the stream")
        return error_from_rpc(ended, peer)

    def _note(self, call: Any) -> None:
        if self._received is not None:
            return
        code, details = _at_once(call.code()), _at_once(call.details())
        metadata = _at_once(call.trailing_metadata())
        if code is not None and metadata is not None:
            self._received = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details, "")


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T | None:
    """What it returns without waiting, as those that ask a call that is done; None: it would wait.

    A task would come too late: what it asked for may be replaced by then.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        coroutine.close()
    return None
