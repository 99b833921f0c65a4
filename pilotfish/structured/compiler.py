"""Compiles grammars beside the engine's steps."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from llguidance import LLMatcher, LLTokenizer

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import compile_grammar
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import Grammar

STACK_BYTES = 16 * 2**20
"""Of the compiling thread: well above the guard's, so that what passes there overflows none here."""
MAX_KEPT_GRAMMARS = 256
MAX_KEPT_BYTES = 512 * 2**20
"""Compiled ones, the least recently used go first; each takes 50 kB to a few MB, at worst what the guard allows."""


class Compiled(NamedTuple):
    """A grammar at its start, and about what it takes."""

    matcher: LLMatcher
    num_bytes: int


class GrammarCompiler:
    """Used from one thread; compiling takes another. The library lets the interpreter's lock go while it compiles."""

    def __init__(self, load: Callable[[], LLTokenizer], guard: GrammarGuard | None = None) -> None:
        """load: the vocabulary, called on the thread with the first grammar. guard: owned from now on; None: grammars
        are trusted."""
        self._load = load
        self._guard = guard
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[Grammar, Future[Compiled]] = OrderedDict()
        # One thread: whoever sends many grammars at once takes no more than a core from the engine.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        before = threading.stack_size(STACK_BYTES)
        self._executor.submit(bool)  # so that the thread begins, with this stack
        threading.stack_size(before)

    @property
    def num_deaths(self) -> int:
        """Grammars that the guard's compiling process died of."""
        return 0 if self._guard is None else self._guard.num_deaths

    def compile(self, grammar: Grammar) -> Future[Compiled]:
        """The grammar at its start; `deep_copy` its matcher before use.

        The future fails with InvalidRequestError, and with other errors for no fault of the grammar's.
        """
        future = self._kept.pop(grammar, None)
        if future is None or _has_failed_for_now(future):
            future = self._executor.submit(self._compile, grammar)
        self._kept[grammar] = future
        while len(self._kept) > MAX_KEPT_GRAMMARS or (len(self._kept) > 1 and self._kept_bytes() > MAX_KEPT_BYTES):
            self._kept.popitem(last=False)
        return future

    def close(self) -> None:
        """Ends after the grammar that is being compiled; one that is being checked fails, others may be cancelled."""
        if self._guard is not None:
            self._guard.close()  # first: the thread may wait for it
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _kept_bytes(self) -> int:
        done = (future for future in self._kept.values() if future.done() and future.exception() is None)
        return sum(future.result().num_bytes for future in done)

    def _compile(self, grammar: Grammar) -> Compiled:
        num_bytes = 0 if self._guard is None else self._guard.check(grammar)
        if self._vocabulary is None:
            self._vocabulary = self._load()
        return Compiled(compile_grammar(self._vocabulary, grammar), num_bytes)


def _has_failed_for_now(future: Future[Compiled]) -> bool:
    """Whether it may go better the next time."""
    error = future.exception() if future.done() and not future.cancelled() else None
    return error is not None and not isinstance(error, InvalidRequestError)
