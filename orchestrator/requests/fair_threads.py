"""Threads for work whose size a client chooses, such as reading a long prompt: clients take turns."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from orchestrator.requests.fair_turns import FairTurns
from pilotfish.config import OrchestratorConfig

ResultT = TypeVar("ResultT")


class FairThreads:
    """Threads in an order that is fair to clients: see `FairTurns`. Work of a caller that is cancelled is dropped,
    unless it has begun: then its thread is taken until it ends."""

    def __init__(self, config: OrchestratorConfig, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: seconds."""
        self._clock = clock
        self._turns = FairTurns(config.num_threads, config.max_queued_requests, clock)
        self._executor = ThreadPoolExecutor(config.num_threads, thread_name_prefix="client-work")

    async def run(self, client_id: str, work: Callable[[], ResultT]) -> ResultT:
        """The work's result, in the client's turn. Raises what the work does, and as `FairTurns.begin`."""
        begun_s = await self._turns.begin(client_id)
        loop = asyncio.get_running_loop()
        future = self._executor.submit(contextvars.copy_context().run, work)  # its logs are about the caller's request

        def leave(_: Future[ResultT]) -> None:
            took_s = self._clock() - begun_s
            with contextlib.suppress(RuntimeError):  # the loop may be closed by then
                loop.call_soon_threadsafe(self._turns.end, client_id, took_s)

        future.add_done_callback(leave)
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # an error's traceback has this frame: with the future in it, it stayed until a collection

    def close(self) -> None:
        """Begin nothing more, and refuse what waits. Idempotent."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._turns.close()
