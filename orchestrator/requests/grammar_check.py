"""Grammars are checked here, so that a bad one is refused before anything is spent on it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pilotfish.errors import InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.fair_queue import FairQueue
from pilotfish.structured.compiler import MAX_KEPT_BYTES, MAX_KEPT_GRAMMARS, USUAL_S
from pilotfish.structured.guard import GrammarGuard
from pilotfish.structured.guard_worker import MAX_CPU_S
from pilotfish.types import Grammar

MAX_KNOWN_GRAMMARS = MAX_KEPT_GRAMMARS
"""Verdicts that are remembered, so that a schema that comes with every request is checked once: as many as a replica
keeps grammars (and of as many bytes), so that what it would have to compile again costs its client a check again."""
MAX_WAITING = 1024
MAX_WAITING_PER_CLIENT = 64
"""Grammars that wait to be checked. A usual one takes 20 ms, the slowest a second: the last of 64 waits about as long
as a request may for its turn (max_queue_time_s)."""


@dataclass(frozen=True, slots=True)
class _GrammarVerdict:
    refusal: InvalidRequestError | None
    """Why the grammar cannot be used; None: it can."""
    took_s: float
    num_bytes: int
    """Bytes that a replica keeps for the compiled grammar."""


@dataclass(eq=False, slots=True)
class _Request:
    """A check of a grammar for a client: one for all of its requests that wait for it."""

    grammar: Grammar
    client_id: str
    verdict: asyncio.Future[_GrammarVerdict]
    num_waiting: int = 0


class GrammarCheck:
    """Checks one grammar after the other, in an order that is fair to clients by the time that theirs took. Belongs to
    one event loop."""

    def __init__(self, guard: GrammarGuard) -> None:
        """guard: closed with this."""
        self._guard = guard
        self._is_closed = False
        self._known: OrderedDict[Grammar, _GrammarVerdict] = OrderedDict()
        self._known_bytes = 0
        self._queue: FairQueue[_Request] = FairQueue()
        self._requests: dict[Grammar, dict[str, _Request]] = {}
        """Checks by grammar and client: the queue's, and those of the grammar that is being checked."""
        self._running: asyncio.Future[_GrammarVerdict] | None = None
        # A thread of its own: whoever sends large schemas takes no more than a core, and holds up nothing else.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    @property
    def num_deaths(self) -> int:
        """Grammars that the guard's compiling process died of."""
        return self._guard.num_deaths

    async def check(self, grammar: Grammar, client_id: str) -> float:
        """The seconds that the check of the grammar took; 0 if it was known, or another request has asked for it.

        Raises InvalidRequestError that names what is wrong or not supported; UnavailableError if it cannot be checked;
        ResourceExhaustedError where too many others wait. A check that nobody waits for any more does not begin.
        """
        verdict, is_known = self._known.get(grammar), True
        if verdict is None:
            verdict, is_known = await self._new_verdict(grammar, client_id)
        else:
            self._known.move_to_end(grammar)
        if verdict.refusal is not None:
            raise InvalidRequestError(str(verdict.refusal), param=verdict.refusal.param)
        return 0.0 if is_known else verdict.took_s

    async def close(self) -> None:
        """Refuse what waits, and end the guard's process. Idempotent."""
        self._is_closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._queue = FairQueue()
        while self._requests:
            _, requests = self._requests.popitem()
            for request in requests.values():
                _fail(request, _closed())
        await asyncio.to_thread(self._guard.close)

    async def _new_verdict(self, grammar: Grammar, client_id: str) -> tuple[_GrammarVerdict, bool]:
        """The verdict, and whether another request of the client waits for it as well."""
        if self._is_closed:
            raise _closed()
        request = self._requests.get(grammar, {}).get(client_id)
        is_shared = request is not None
        if request is None:
            self._check_room(client_id)
            request = _Request(grammar, client_id, asyncio.get_running_loop().create_future())
            self._requests.setdefault(grammar, {})[client_id] = request
            self._queue.push(client_id, request, USUAL_S)
            self._begin_next()
        request.num_waiting += 1
        try:
            return await asyncio.shield(request.verdict), is_shared
        finally:
            request.num_waiting -= 1
            if request.num_waiting == 0:
                self._forget(request)

    def _forget(self, request: _Request) -> None:
        """Drop a check that nobody waits for any more."""
        request.verdict.cancel()
        self._queue.remove(request.client_id, request)
        requests = self._requests.get(request.grammar, {})
        if requests.get(request.client_id) is request:
            del requests[request.client_id]
            if not requests:
                del self._requests[request.grammar]

    def _check_room(self, client_id: str) -> None:
        if self._queue.num_items(client_id) >= MAX_WAITING_PER_CLIENT:
            problem = f"{MAX_WAITING_PER_CLIENT} grammars of this client wait to be checked"
        elif len(self._queue) >= MAX_WAITING:
            problem = f"{MAX_WAITING} grammars wait to be checked"
        else:
            return
        error = ResourceExhaustedError(f"{problem}; try again later")
        error.retry_after_s = MAX_CPU_S  # by then the slowest is done
        raise error

    def _begin_next(self) -> None:
        """Check the next grammar of the queue, unless one is being checked."""
        while self._running is None and self._queue:
            client_id, request, cost_s = self._queue.pop()
            if request.verdict.done():  # settled with others: its tasks have yet to find out
                self._queue.correct(client_id, -cost_s)
                continue
            self._running = asyncio.get_running_loop().run_in_executor(self._executor, self._judge, request.grammar)
            self._running.add_done_callback(functools.partial(self._learn, request.grammar, client_id, cost_s))

    def _learn(self, grammar: Grammar, client_id: str, cost_s: float, verdict: asyncio.Future[_GrammarVerdict]) -> None:
        self._running = None
        if verdict.cancelled():  # closed
            return
        error = verdict.exception()
        for request in self._requests.pop(grammar, {}).values():
            if error is None:
                request.verdict.set_result(verdict.result())
            else:
                _fail(request, error)
        if error is None:
            self._queue.correct(client_id, verdict.result().took_s - cost_s)
            self._remember(grammar, verdict.result())
        self._begin_next()

    def _remember(self, grammar: Grammar, verdict: _GrammarVerdict) -> None:
        self._known[grammar] = verdict
        self._known_bytes += verdict.num_bytes
        while len(self._known) > MAX_KNOWN_GRAMMARS or (len(self._known) > 1 and self._known_bytes > MAX_KEPT_BYTES):
            _, forgotten = self._known.popitem(last=False)
            self._known_bytes -= forgotten.num_bytes

    def _judge(self, grammar: Grammar) -> _GrammarVerdict:
        """The verdict; runs on the thread."""
        started_s = time.perf_counter()
        refusal, num_bytes = None, 0
        try:
            num_bytes = self._guard.check(grammar)
        except InvalidRequestError as error:
            refusal = error
        return _GrammarVerdict(refusal, time.perf_counter() - started_s, num_bytes)


def _fail(request: _Request, error: BaseException) -> None:
    request.verdict.set_exception(error)
    request.verdict.exception()  # its task may be cancelled before it hears of it


def _closed() -> UnavailableError:
    return UnavailableError("the server stops")
