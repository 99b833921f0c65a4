"""Taking the messages of gRPC calls: so few at once that what strangers send does not fill the memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from orchestrator.requests.body_budget import BodyBudget, max_message_bytes
from orchestrator.requests.fair_turns import FairTurns
from orchestrator.requests.stranger_share import StrangerShare
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import DeadlineExceededError, InvalidRequestError, PilotfishError, status_of

Context = grpc.aio.ServicerContext[Any, Any]

_PLACES = 4
"""Messages that are taken at once. Each may be of the largest size, whose copies hold the event loop for 5 ms when it
is complete."""
_STRANGER_PLACES = 2
"""Messages that are taken at once, beside those, of clients of which nothing was accepted."""
_PLACE_S = 0.02
"""How long a message has a place that another waits for: up to 64 KiB come with their call, before it is looked at."""
_MAX_WAITING = 512
"""Calls that may wait for a place: 22 kB each (measured), and what they have sent."""
_CALL_S, _BYTE_S = 0.0005, 1e-9
"""Loop time that a refused call takes, and a byte of its message (measured, with what gRPC's threads take of it)."""
_FIRST_OWN_FAULT = 500
"""HTTP's status of errors that are no client's."""
_MAX_ACCEPTED = 8192
"""Clients that are remembered."""


class CallMessages:
    """Takes the messages of all calls of a server.

    gRPC says a message's size when it is complete, and takes 64 KiB of it before. So each counts as one of the largest
    size while it is taken: first it has one of a few places, which clients have in turns; if that is not enough, it is
    held in the budget, or the call is refused. Clients of which no call was accepted, or whose last one was refused,
    have places of their own, and wait for their share of the loop's time.
    """

    def __init__(
        self, config: OrchestratorConfig, budget: BodyBudget, timeout_s: float, strangers: StrangerShare
    ) -> None:
        """timeout_s: the most time from a call's arrival until its message is complete."""
        self._budget = budget
        self._max_bytes = 2 * max_message_bytes(config)  # gRPC copies what it has taken
        self._timeout_s = timeout_s
        self._turns = FairTurns(_PLACES, _MAX_WAITING)
        self._strangers = strangers
        self._stranger_turns = FairTurns(_STRANGER_PLACES, _MAX_WAITING)
        self._accepted: OrderedDict[str, None] = OrderedDict()
        """Clients that are no strangers."""

    @contextlib.asynccontextmanager
    async def taking(
        self, context: Context, decode: Callable[[bytes], Awaitable[Any]], *, client_id: str, holder: str
    ) -> AsyncIterator[Any]:
        """The call's next message, which counts as in memory until the block ends; None: it has no more.

        client_id: whose turn it is. holder: whose memory it takes. Raises DeadlineExceededError, InvalidRequestError,
        and ResourceExhaustedError where too much is in memory or under way, also what `decode` raises.
        """
        with self._budget.holding(holder) as hold, self._judging(client_id) as note:
            try:
                data = await self._read(context, client_id, holder, hold)
                note(len(data or b""))
                message = None if data is None else await decode(data)
            except DecodeError:
                raise InvalidRequestError("the message cannot be decoded") from None
            finally:
                data = None
            yield message

    @contextlib.contextmanager
    def _judging(self, client_id: str) -> Iterator[Callable[[int], None]]:
        """How the block ends says who is a stranger, and a refusal is theirs to pay. The yielded function takes the
        message's length."""
        num_bytes = 0

        def note(length: int) -> None:
            nonlocal num_bytes
            num_bytes = length

        try:
            yield note
        except PilotfishError as error:
            _, status = status_of(error)
            if status < _FIRST_OWN_FAULT:
                self._accepted.pop(client_id, None)
                self._strangers.spend(_CALL_S + _BYTE_S * num_bytes)
            raise
        self._accepted[client_id] = None
        self._accepted.move_to_end(client_id)
        if len(self._accepted) > _MAX_ACCEPTED:
            self._accepted.popitem(last=False)

    async def _read(self, context: Context, client_id: str, holder: str, hold: Callable[[int], None]) -> bytes | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await self._message(context, client_id, holder, hold)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the request was not sent within {self._timeout_s:g} s (security.public.request_read_timeout_s)"
            ) from None
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # absent from grpc-stubs
            return None
        hold(len(message))
        return bytes(message)

    async def _message(self, context: Context, client_id: str, holder: str, hold: Callable[[int], None]) -> Any:
        is_stranger = client_id not in self._accepted
        turns = self._stranger_turns if is_stranger else self._turns
        async with contextlib.AsyncExitStack() as place:
            await place.enter_async_context(turns.turn(client_id))
            if is_stranger:
                await self._strangers.turn(holder)
            reading = asyncio.create_task(context.read())
            is_forgiven = False
            try:
                while not reading.done():
                    begun_s = time.monotonic()
                    await asyncio.wait((reading,), timeout=_PLACE_S)
                    # Late says that the loop was held, not that the client is slow.
                    is_late = time.monotonic() - begun_s > 2 * _PLACE_S
                    if turns.num_waiting and (is_forgiven or not is_late):
                        break
                    is_forgiven = is_forgiven or is_late
                await place.aclose()
                if not reading.done():
                    hold(self._max_bytes)
                return await reading
            finally:
                reading.cancel()
