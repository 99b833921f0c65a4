"""Compiles grammars beside the engine's steps."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from llguidance import LLMatcher, LLTokenizer

from pilotfish.structured.grammar import compile_grammar
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import Grammar

STACK_BYTES = 16 * 2**20
"""Of the compiling thread: well above the guard's, so that what passes there overflows none here."""
MAX_KEPT_GRAMMARS = 256
MAX_KEPT_BYTES = 512 * 2**20
"""Compiled ones, the least recently used go first; each takes 50 kB to a few MB, at worst what the guard allows."""


class GrammarCompiler:
    """Used from one thread; compiling takes another. The library lets the interpreter's lock go while it compiles."""

    def __init__(self, load: Callable[[], LLTokenizer], guard: GrammarGuard | None = None) -> None:
        """load: the vocabulary, called on the thread with the first grammar. guard: owned from now on; None: grammars
        are trusted."""
        self._load = load
        self._guard = guard
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[Grammar, Future[LLMatcher]] = OrderedDict()
        self._num_bytes: dict[Grammar, int] = {}
        """Of those that are compiled."""
        # One thread: whoever sends many grammars at once takes no more than a core from the engine.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        before = threading.stack_size(STACK_BYTES)
        self._executor.submit(bool)  # so that the thread begins, with this stack
        threading.stack_size(before)

    def compile(self, grammar: Grammar) -> Future[LLMatcher]:
        """The grammar at its start; `deep_copy` it before use. The future fails with InvalidRequestError."""
        future = self._kept.pop(grammar, None)
        if future is None:
            future = self._executor.submit(self._compile, grammar)
        self._kept[grammar] = future
        while len(self._kept) > MAX_KEPT_GRAMMARS or self._kept_bytes() > MAX_KEPT_BYTES:
            oldest, _ = self._kept.popitem(last=False)
            self._num_bytes.pop(oldest, None)
        return future

    def close(self) -> None:
        """Ends after the grammar that is being compiled; others fail as cancelled."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        if self._guard is not None:
            self._guard.close()

    def _kept_bytes(self) -> int:
        return sum(list(self._num_bytes.values()))

    def _compile(self, grammar: Grammar) -> LLMatcher:
        num_bytes = 0 if self._guard is None else self._guard.check(grammar)
        if self._vocabulary is None:
            self._vocabulary = self._load()
        matcher = compile_grammar(self._vocabulary, grammar)
        self._num_bytes[grammar] = num_bytes
        return matcher
