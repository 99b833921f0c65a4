"""What a call ended with, whatever grpc.aio makes of it afterwards."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from pilotfish.errors import AuthenticationError, PilotfishError, UnavailableError
from pilotfish.rpc.status import CallStatus, abort
from pilotfish.rpc.target_frames import TargetFrames

Handler = Callable[[Any, Any], Awaitable[None]]


async def refuse(_requests: object, context: Any) -> None:
    await abort(context, AuthenticationError("who are you?"))


async def end(_requests: object, _context: object) -> None:
    """With status OK."""


async def told_after_a_failed_write(handler: Handler) -> PilotfishError:
    """What is told of a call to a server with this handler, if a frame could not be sent when it had ended."""
    server = grpc.aio.server()
    TargetFrames().add_to_server(handler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = TargetFrames().open_call(channel)
            status = CallStatus(call)
            await call.code()
            call._cython_call.set_internal_error("the frame was not sent")
            with pytest.raises(grpc.aio.AioRpcError, match="Internal error from Core") as raised:
                await call.read()
            return status.error(raised.value, "replica x")
    finally:
        await server.stop(None)


async def test_a_refusal_is_not_forgotten_for_a_frame_that_could_not_be_sent() -> None:
    error = await told_after_a_failed_write(refuse)
    assert isinstance(error, AuthenticationError)  # which the trailing metadata tells
    assert str(error) == "replica x: who are you?"


async def test_an_end_without_a_fault_is_one() -> None:
    error = await told_after_a_failed_write(end)
    assert isinstance(error, UnavailableError)
    assert str(error) == "replica x ended the stream"
