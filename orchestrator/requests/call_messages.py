"""Taking the messages of gRPC calls: so few at once that what strangers send does not fill the memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from orchestrator.requests.body_budget import BodyBudget, max_message_bytes
from orchestrator.requests.fair_turns import FairTurns
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import DeadlineExceededError, InvalidRequestError

Context = grpc.aio.ServicerContext[Any, Any]

_PLACES = 4
"""Each may take a message of the largest size, whose copies hold the event loop for 5 ms when it is complete."""
_PLACE_S = 0.02
"""How long a message has a place that another waits for: up to 64 KiB come with their call, before it is looked at."""
_MAX_WAITING = 512
"""Calls that may wait for a place: 22 kB each (measured), and what they have sent."""


class CallMessages:
    """Takes the messages of all calls of a server.

    gRPC says a message's size when it is complete, and takes 64 KiB of it before. So each counts as one of the largest
    size while it is taken: first it has one of a few places, which clients have in turns; if that is not enough, it is
    held in the budget, or the call is refused.
    """

    def __init__(self, config: OrchestratorConfig, budget: BodyBudget, timeout_s: float) -> None:
        """timeout_s: the most time from a call's arrival until its message is complete."""
        self._budget = budget
        self._max_bytes = 2 * max_message_bytes(config)  # gRPC copies what it has taken
        self._timeout_s = timeout_s
        self._turns = FairTurns(_PLACES, _MAX_WAITING)

    @contextlib.asynccontextmanager
    async def taking(
        self, context: Context, decode: Callable[[bytes], Any], *, client_id: str, holder: str
    ) -> AsyncIterator[Any]:
        """The call's next message, which counts as in memory until the block ends; None: it has no more.

        client_id: whose turn it is. holder: whose memory it takes. Raises DeadlineExceededError, InvalidRequestError,
        and ResourceExhaustedError where too much is in memory or under way.
        """
        with self._budget.holding(holder) as hold:
            try:
                data = await self._read(context, client_id, hold)
                message = None if data is None else decode(data)
            except DecodeError:
                raise InvalidRequestError("the message cannot be decoded") from None
            del data
            yield message

    async def _read(self, context: Context, client_id: str, hold: Callable[[int], None]) -> bytes | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await self._message(context, client_id, hold)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the request was not sent within {self._timeout_s:g} s (security.public.request_read_timeout_s)"
            ) from None
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # absent from grpc-stubs
            return None
        hold(len(message))
        return bytes(message)

    async def _message(self, context: Context, client_id: str, hold: Callable[[int], None]) -> Any:
        async with contextlib.AsyncExitStack() as place:
            await place.enter_async_context(self._turns.turn(client_id))
            reading = asyncio.create_task(context.read())
            is_forgiven = False
            try:
                while not reading.done():
                    begun_s = time.monotonic()
                    await asyncio.wait((reading,), timeout=_PLACE_S)
                    # Late says that the loop was held, not that the client is slow.
                    is_late = time.monotonic() - begun_s > 2 * _PLACE_S
                    if self._turns.num_waiting and (is_forgiven or not is_late):
                        break
                    is_forgiven = is_forgiven or is_late
                await place.aclose()
                if not reading.done():
                    hold(self._max_bytes)
                return await reading
            finally:
                reading.cancel()
