"""PilotfishError <-> gRPC status. Details are the error's message: never a traceback."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc
import grpc.aio

from pilotfish.errors import (
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

_KINDS: dict[grpc.StatusCode, type[PilotfishError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: ModelNotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: HandshakeError,
    # The address is that of another kind of server.
    grpc.StatusCode.UNIMPLEMENTED: HandshakeError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
}


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: PilotfishError) -> NoReturn:
    """End the call with the error's status."""
    name, _ = status_of(error)
    metadata = ((KIND_KEY, type(error).__name__),)
    await context.abort(grpc.StatusCode[name], str(error), trailing_metadata=metadata)
    raise AssertionError("abort raises")


@asynccontextmanager
async def aborting_on_error(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """End the call with a status when the block raises. What is not a PilotfishError is logged and told as INTERNAL."""
    try:
        yield
    except PilotfishError as error:
        await abort(context, error)
    except grpc.aio.AbortError:
        raise
    except Exception:
        logger.exception("a call failed for a reason of our own")
        await abort(context, InternalError("internal error; the server's log tells more"))


def error_from_rpc(error: grpc.RpcError, peer: str = "") -> PilotfishError:
    """The PilotfishError that a call's status stands for. `peer` names the server in the message."""
    # RpcError has no methods in its declaration; every one that a call raises has these.
    call: Any = error
    code: grpc.StatusCode = call.code()
    details = call.details() or code.name.lower().replace("_", " ")
    message = f"{peer}: {details}" if peer else details
    for key, value in call.trailing_metadata() or ():
        if key == KIND_KEY:
            return error_named(str(value), message)
    return _KINDS.get(code, InternalError)(message)
