"""Compiles grammars beside the engine's steps."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from llguidance import LLMatcher, LLTokenizer

from pilotfish.errors import InvalidRequestError
from pilotfish.fair_queue import FairQueue
from pilotfish.structured.grammar import compile_grammar
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import Grammar

STACK_BYTES = 16 * 2**20
"""Stack of the compiling thread: well above the guard's, so that what passes there overflows none here."""
USUAL_S = 0.02
"""What compiling is expected to take; what it took is known afterwards."""
MAX_KEPT_GRAMMARS = 256
MAX_KEPT_BYTES = 512 * 2**20
"""Compiled ones, the least recently used go first; each takes 50 kB to a few MB, at worst what the guard allows."""


class Compiled(NamedTuple):
    """A grammar at its start, and about what it takes."""

    matcher: LLMatcher
    vocabulary: LLTokenizer
    num_bytes: int


@dataclass(slots=True, eq=False)
class _Job:
    """A grammar that is to be compiled, under each client that asks for it."""

    grammar: Grammar
    future: Future[Compiled] = field(default_factory=Future)
    clients: set[str] = field(default_factory=set)


class GrammarCompiler:
    """Compiles on a thread of its own, used from one. The library lets the interpreter's lock go while it compiles.

    The order is fair to clients by the time that their grammars took.
    """

    def __init__(self, load: Callable[[], LLTokenizer], guard: GrammarGuard | None = None) -> None:
        """load: the vocabulary's loader, called on the thread with the first grammar. guard: closed with this; None:
        grammars are trusted."""
        self._load = load
        self._guard = guard
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[Grammar, _Job] = OrderedDict()
        self._lock = threading.Lock()
        self._queue: FairQueue[_Job] = FairQueue()
        """Under the lock: the thread takes out what is next."""
        # One thread: whoever sends many grammars at once takes no more than a core from the engine.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        before = threading.stack_size(STACK_BYTES)
        self._executor.submit(bool)  # so that the thread begins, with this stack
        threading.stack_size(before)

    @property
    def num_deaths(self) -> int:
        """Grammars that the guard's compiling process died of."""
        return 0 if self._guard is None else self._guard.num_deaths

    def compile(self, grammar: Grammar, client: str = "") -> Future[Compiled]:
        """The grammar at its start; `deep_copy` its matcher before use. Cancel the future when nobody waits for it.

        The future fails with InvalidRequestError, and with other errors for no fault of the grammar's.
        """
        job = self._kept.pop(grammar, None)
        if job is None or job.future.cancelled() or _has_failed_for_now(job.future):
            job = _Job(grammar)
        self._kept[grammar] = job
        if not job.future.done() and client not in job.clients:
            # Whoever has waited less may be next sooner: for all that ask.
            job.clients.add(client)
            with self._lock:
                self._queue.push(client, job, USUAL_S)
            self._executor.submit(self._compile_next)
        while len(self._kept) > MAX_KEPT_GRAMMARS or (len(self._kept) > 1 and self._kept_bytes() > MAX_KEPT_BYTES):
            self._kept.popitem(last=False)
        return job.future

    def close(self) -> None:
        """Ends after the grammar that is being compiled; one that is being checked fails, others are cancelled."""
        if self._guard is not None:
            self._guard.close()  # first: the thread may wait for it
        for job in self._kept.values():
            job.future.cancel()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _kept_bytes(self) -> int:
        futures = (job.future for job in self._kept.values() if job.future.done() and not job.future.cancelled())
        return sum(future.result().num_bytes for future in futures if future.exception() is None)

    def _compile_next(self) -> None:
        """Compile the next job; runs on the thread, once for each entry of the queue."""
        with self._lock:
            client, job, cost_s = self._queue.pop()
        started_s = time.perf_counter()
        # Another client's turn may have come first, or nobody waits any more.
        if not job.future.done() and job.future.set_running_or_notify_cancel():
            try:
                job.future.set_result(self._compile(job.grammar))
            except BaseException as error:  # a panic of the library is no Exception
                job.future.set_exception(error)
        with self._lock:
            self._queue.correct(client, time.perf_counter() - started_s - cost_s)

    def _compile(self, grammar: Grammar) -> Compiled:
        num_bytes = 0 if self._guard is None else self._guard.check(grammar)
        if self._vocabulary is None:
            self._vocabulary = self._load()
        return Compiled(compile_grammar(self._vocabulary, grammar), self._vocabulary, num_bytes)


def _has_failed_for_now(future: Future[Compiled]) -> bool:
    """Whether it may go better the next time."""
    error = future.exception() if future.done() and not future.cancelled() else None
    return error is not None and not isinstance(error, InvalidRequestError)
