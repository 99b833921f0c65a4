"""Schemas, expressions and grammars through guard and compiler of a target, in a process that may die of one."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import random
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from fuzz.grammar_texts import GRAMMARS
from fuzz.surface import HANG_S
from pilotfish.config import Config
from pilotfish.errors import InvalidRequestError
from pilotfish.models.store.pull import pull_tokenizer
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.grammar import load_vocabulary
from pilotfish.structured.guard import GrammarGuard
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar, GrammarKind

NUM_TOKENS = 12
"""Of an answer."""
MAX_END_CHARS = 80
"""Of what became of a grammar: refusals go on to quote it."""


class GrammarsSurface:
    """An input is a grammar."""

    name = "grammars"
    inputs = GRAMMARS

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        config = Config()
        self._folder = str(pull_tokenizer(config.target.model, config.cache_dir))
        # A process that dies breaks the pool: that is the crash.
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self._pool.submit(end_of, self._folder, Grammar(GrammarKind.JSON_OBJECT)).result()
        yield
        for process in multiprocessing.active_children():
            process.kill()  # it may compute for ever
        self._pool.shutdown()

    async def run(self, data: Grammar) -> set[str]:
        end = self._pool.submit(end_of, self._folder, data).result(HANG_S)
        return {f"{data.kind.name} {end}"[:MAX_END_CHARS]}


@functools.cache
def compiler_of(folder: str) -> GrammarCompiler:
    """As a target has it, one for each process."""
    tokenizer = Tokenizer.load(Path(folder))
    arguments = Path(folder), tokenizer.vocab_size, sorted(tokenizer.eos_token_ids)
    return GrammarCompiler(lambda: load_vocabulary(*arguments), GrammarGuard(*arguments))


def end_of(folder: str, grammar: Grammar) -> str:
    """Refused, and why; or compiled, and how far some allowed tokens lead, each after drafts that are rejected."""
    try:
        compiled = compiler_of(folder).compile(grammar).result()
    except InvalidRequestError as error:
        return f"refused: {error}"
    matcher, rng = GrammarMatcher(compiled.matcher.deep_copy(), num_prompt_tokens=1), random.Random(1)
    for position in range(NUM_TOKENS):
        mask = matcher.allowed()
        if matcher.fault:
            return f"fault: {matcher.fault}"
        if mask is None or not any(mask):
            return f"ends {'at once' if position == 0 else 'later'}"
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little"))
        token_ids = [int(rng.choice(allowed)) for _ in range(2)]
        matcher.allowed(token_ids[:1])
        matcher.allowed(token_ids)
        matcher.append(token_ids[:1])
    return "goes on"
