"""Threads for work whose size a client chooses, such as reading a long prompt: clients take turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pilotfish.config import OrchestratorConfig
from pilotfish.errors import ResourceExhaustedError
from pilotfish.fair_queue import FairQueue

_RETRY_S = 1.0

ResultT = TypeVar("ResultT")


class FairThreads:
    """Belongs to one event loop. Work of a caller that is cancelled is dropped, unless it has begun: then its thread is
    taken until it ends."""

    def __init__(self, config: OrchestratorConfig) -> None:
        self._num_free = config.num_threads
        self._max_waiting = config.max_queued_requests
        self._max_waiting_per_client = config.max_queued_requests_per_client
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._executor = ThreadPoolExecutor(config.num_threads, thread_name_prefix="client-work")

    async def run(self, client_id: str, cost: float, work: Callable[[], ResultT]) -> ResultT:
        """The work's result, in the client's turn. cost: what it counts in the client's share.

        Raises what the work does, and ResourceExhaustedError where too much waits.
        """
        await self._turn(client_id, cost)
        loop = asyncio.get_running_loop()
        future = self._executor.submit(work)

        def leave(_: Future[ResultT]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by then
                loop.call_soon_threadsafe(self._leave)

        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin nothing more. Idempotent."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, client_id: str, cost: float) -> None:
        is_full = len(self._queue) >= self._max_waiting
        if not self._num_free and (is_full or self._queue.num_items(client_id) >= self._max_waiting_per_client):
            error = ResourceExhaustedError("too many prompts wait to be read; try again later")
            error.retry_after_s = _RETRY_S
            raise error
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.push(client_id, turn, cost)
        self._grant()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                self._queue.remove(client_id, turn)
            raise

    def _grant(self) -> None:
        while self._queue and self._num_free:
            client_id, turn, cost = self._queue.pop()
            if turn.cancelled():
                # Its task has yet to find out.
                self._queue.correct(client_id, -cost)
                continue
            self._num_free -= 1
            turn.set_result(None)

    def _leave(self) -> None:
        self._num_free += 1
        self._grant()
