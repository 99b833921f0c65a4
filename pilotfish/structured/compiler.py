"""Compiles grammars beside the engine's steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import engine_grammar, one_line
from pilotfish.types import Grammar

MAX_KEPT_GRAMMARS = 256
"""Compiled ones, the least recently used go first; each takes from 50 kB to a few MB."""


def load_vocabulary(folder: Path, vocab_size: int, eos_token_ids: Collection[int]) -> LLTokenizer:
    """What grammars need to know of a model's tokens; takes about a second.

    vocab_size: the width of the logits. eos_token_ids: allowed once the grammar is satisfied.
    """
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return LLTokenizer(text, n_vocab=vocab_size, eos_token=sorted(eos_token_ids))


class GrammarCompiler:
    """Thread-safe. The library lets the interpreter's lock go while it compiles."""

    def __init__(self, load: Callable[[], LLTokenizer], max_kept: int = MAX_KEPT_GRAMMARS) -> None:
        """load: the vocabulary, called on the thread with the first grammar."""
        self._load = load
        self._max_kept = max_kept
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[Grammar, Future[LLMatcher]] = OrderedDict()
        # One thread: whoever sends many grammars at once takes no more than a core from the engine.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    def compile(self, grammar: Grammar) -> Future[LLMatcher]:
        """The grammar at its start; `deep_copy` it before use. The future fails with InvalidRequestError."""
        future = self._kept.pop(grammar, None)
        if future is None:
            future = self._executor.submit(self._compile, grammar)
        self._kept[grammar] = future
        if len(self._kept) > self._max_kept:
            self._kept.popitem(last=False)
        return future

    def close(self) -> None:
        """Ends after the grammar that is being compiled; others fail as cancelled."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        if self._vocabulary is None:
            self._vocabulary = self._load()
        matcher = LLMatcher(self._vocabulary, engine_grammar(grammar), log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()  # the first one builds tables that copies share
        if matcher.is_error():
            raise InvalidRequestError(f"the grammar cannot be used: {one_line([matcher.get_error()])}", param="grammar")
        return matcher
