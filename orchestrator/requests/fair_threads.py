"""Threads for work whose size a client chooses, such as reading a long prompt: clients take turns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pilotfish.config import OrchestratorConfig
from pilotfish.errors import ResourceExhaustedError, UnavailableError
from pilotfish.fair_queue import FairQueue

_RETRY_S = 1.0
_USUAL_S = 0.002
"""What work counts in its client's share until it has ended: about what a usual prompt takes."""

ResultT = TypeVar("ResultT")


class FairThreads:
    """Threads in an order that is fair to clients by how long they held one: what work costs cannot be told before.
    Belongs to one event loop. Work of a caller that is cancelled is dropped, unless it has begun: then its thread is
    taken until it ends."""

    def __init__(self, config: OrchestratorConfig, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: in seconds."""
        self._clock = clock
        self._num_free = config.num_threads
        self._is_closed = False
        self._max_waiting = config.max_queued_requests
        self._max_waiting_per_client = config.max_queued_requests_per_client
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._executor = ThreadPoolExecutor(config.num_threads, thread_name_prefix="client-work")

    async def run(self, client_id: str, work: Callable[[], ResultT]) -> ResultT:
        """The work's result, in the client's turn.

        Raises what the work does, ResourceExhaustedError where too much waits, and UnavailableError once this is
        closed.
        """
        await self._turn(client_id)
        loop = asyncio.get_running_loop()
        begun_s = self._clock()
        future = self._executor.submit(work)

        def leave(_: Future[ResultT]) -> None:
            took_s = self._clock() - begun_s
            with contextlib.suppress(RuntimeError):  # the loop may be closed by then
                loop.call_soon_threadsafe(self._leave, client_id, took_s)

        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin nothing more, and refuse what waits. Idempotent."""
        self._is_closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        while self._queue:
            _, turn, _ = self._queue.pop()
            if not turn.done():
                turn.set_exception(_closed())

    async def _turn(self, client_id: str) -> None:
        if self._is_closed:
            raise _closed()
        is_full = len(self._queue) >= self._max_waiting
        if not self._num_free and (is_full or self._queue.num_items(client_id) >= self._max_waiting_per_client):
            error = ResourceExhaustedError("too many prompts wait to be read; try again later")
            error.retry_after_s = _RETRY_S
            raise error
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.push(client_id, turn, _USUAL_S)
        self._grant()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(client_id, 0.0)
            else:
                self._queue.remove(client_id, turn)
            raise

    def _grant(self) -> None:
        while self._queue and self._num_free:
            client_id, turn, cost_s = self._queue.pop()
            if turn.cancelled():
                # Its task has yet to find out.
                self._queue.correct(client_id, -cost_s)
                continue
            self._num_free -= 1
            turn.set_result(None)

    def _leave(self, client_id: str, took_s: float) -> None:
        self._queue.correct(client_id, took_s - _USUAL_S)
        self._num_free += 1
        self._grant()


def _closed() -> UnavailableError:
    return UnavailableError("the server stops")
