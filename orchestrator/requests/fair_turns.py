"""Places that clients hold for a time that is not known before: they take turns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from pilotfish.errors import PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.fair_queue import FairQueue

_RETRY_S = 1.0
_USUAL_S = 0.002
"""What a turn counts in its client's share until it has ended: about what it takes to read a usual prompt."""


_Turn = asyncio.Future[Callable[[], PilotfishError] | None]
"""Done when it begins, or with what makes the error if it never will: one that a future holds is part of a cycle."""


class FairTurns:
    """Gives so many turns at once, in an order that is fair to clients by how long they had one. For one event loop.

    Of what waits, one too many costs the client that has most of it its newest one.
    """

    def __init__(self, num_places: int, max_waiting: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: seconds."""
        self._num_free = num_places
        self._max_waiting = max_waiting
        self._clock = clock
        self._is_closed = False
        self._queue: FairQueue[_Turn] = FairQueue()

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    @contextlib.asynccontextmanager
    async def turn(self, client_id: str) -> AsyncIterator[None]:
        """The block is the client's turn. Raises as `begin`."""
        begun_s = await self.begin(client_id)
        try:
            yield
        finally:
            self.end(client_id, self._clock() - begun_s)

    async def begin(self, client_id: str) -> float:
        """Wait for a turn, which is to be ended. When it begins, by the clock.

        Raises ResourceExhaustedError where too much waits, and UnavailableError once this is closed.
        """
        if self._is_closed:
            raise _closed()
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._queue.push(client_id, turn, _USUAL_S)
        self._grant()
        if len(self._queue) > self._max_waiting:
            _refuse(self._queue.drop(), _too_many)
        try:
            refusal = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result() is None:
                self.end(client_id, 0.0)
            else:
                self._queue.remove(client_id, turn)
            raise
        if refusal is not None:
            raise refusal()
        return self._clock()

    def end(self, client_id: str, took_s: float) -> None:
        """A turn of the client's has ended."""
        self._queue.correct(client_id, took_s - _USUAL_S)
        self._num_free += 1
        self._grant()

    def close(self) -> None:
        """Begin nothing more, and refuse what waits. Idempotent."""
        self._is_closed = True
        while self._queue:
            _, turn, _ = self._queue.pop()
            _refuse(turn, _closed)

    def _grant(self) -> None:
        while self._queue and self._num_free:
            client_id, turn, cost_s = self._queue.pop()
            if turn.cancelled():
                # Its task has yet to find out.
                self._queue.correct(client_id, -cost_s)
                continue
            self._num_free -= 1
            turn.set_result(None)


def _refuse(turn: _Turn, refusal: Callable[[], PilotfishError]) -> None:
    if not turn.done():
        turn.set_result(refusal)


def _too_many() -> ResourceExhaustedError:
    error = ResourceExhaustedError("too many requests wait to be read; try again later")
    error.retry_after_s = _RETRY_S
    return error


def _closed() -> UnavailableError:
    return UnavailableError("the server stops")
