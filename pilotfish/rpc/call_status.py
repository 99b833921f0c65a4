"""Why a call of two streams ended, as its server said."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
import grpc.aio

from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.rpc.status import error_from_rpc

T = TypeVar("T")


class CallStatus:
    """Made with the call, before anything is awaited.

    A frame that cannot be sent any more makes grpc.aio replace the server's status, which it knows by then, with
    INTERNAL, "Internal error from Core": about one call in a hundred of those that a server refuses at once.
    """

    def __init__(self, call: Any) -> None:
        self._told: grpc.RpcError | None = None
        """With the server's status; None: it said nothing yet."""
        call.add_done_callback(self._note)

    def error(self, error: grpc.RpcError, peer: str) -> PilotfishError:
        """What the call ended with that has raised `error`. `peer` names the server in the message."""
        told: Any = self._told or error
        if told.code() is grpc.StatusCode.OK:
            return UnavailableError(f"{peer} ended the stream")
        return error_from_rpc(told, peer)

    def _note(self, call: Any) -> None:
        if self._told is not None:
            return
        code, details = _at_once(call.code()), _at_once(call.details())
        metadata = _at_once(call.trailing_metadata())
        if code is not None and metadata is not None:
            self._told = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details, "")


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
