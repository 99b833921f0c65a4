"""Grammars are checked here, so that a bad one is refused before anything is spent on it."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from pilotfish.errors import InvalidRequestError, ResourceExhaustedError
from pilotfish.structured.guard import GrammarGuard
from pilotfish.structured.guard_worker import MAX_CPU_S
from pilotfish.types import Grammar

MAX_KNOWN_GRAMMARS = 1024
"""Verdicts that are remembered, so that a schema that comes with every request is checked once."""
MAX_UNDER_WAY = 64
"""Grammars that are checked or wait for it. A usual one takes 20 ms, the slowest a second: the last of 64 waits about
as long as a request may for its turn (max_queue_time_s)."""


class GrammarCheck:
    """Belongs to one event loop."""

    def __init__(self, guard: GrammarGuard) -> None:
        """guard: owned from now on."""
        self._guard = guard
        self._refusals: OrderedDict[Grammar, InvalidRequestError | None] = OrderedDict()
        self._under_way: dict[Grammar, asyncio.Future[InvalidRequestError | None]] = {}
        # A thread of its own: whoever sends large schemas takes no more than a core, and holds up nothing else.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    @property
    def num_deaths(self) -> int:
        """Grammars that the guard's compiling process died of."""
        return self._guard.num_deaths

    async def check(self, grammar: Grammar) -> None:
        """Raises InvalidRequestError that names what is wrong or not supported; UnavailableError if none can tell;
        ResourceExhaustedError where too many others wait."""
        if grammar in self._refusals:
            self._refusals.move_to_end(grammar)
            refusal = self._refusals[grammar]
        else:
            # Shielded: others may wait for the same verdict, and whoever asks again finds it.
            refusal = await asyncio.shield(self._verdict(grammar))
        if refusal is not None:
            raise InvalidRequestError(str(refusal), param=refusal.param)

    def close(self) -> None:
        """End the guard's process. Idempotent."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._guard.close()

    def _verdict(self, grammar: Grammar) -> asyncio.Future[InvalidRequestError | None]:
        """One for all that ask meanwhile."""
        verdict = self._under_way.get(grammar)
        if verdict is None:
            if len(self._under_way) >= MAX_UNDER_WAY:
                error = ResourceExhaustedError(f"{MAX_UNDER_WAY} other grammars wait to be checked; try again later")
                error.retry_after_s = MAX_CPU_S  # by then the slowest is done
                raise error
            verdict = asyncio.get_running_loop().run_in_executor(self._executor, self._judge, grammar)
            self._under_way[grammar] = verdict
            verdict.add_done_callback(functools.partial(self._learn, grammar))
        return verdict

    def _learn(self, grammar: Grammar, verdict: asyncio.Future[InvalidRequestError | None]) -> None:
        del self._under_way[grammar]
        if verdict.cancelled() or verdict.exception() is not None:
            return
        self._refusals[grammar] = verdict.result()
        if len(self._refusals) > MAX_KNOWN_GRAMMARS:
            self._refusals.popitem(last=False)

    def _judge(self, grammar: Grammar) -> InvalidRequestError | None:
        """On the thread. Why the grammar cannot be used."""
        try:
            self._guard.check(grammar)
        except InvalidRequestError as error:
            return error
        return None
