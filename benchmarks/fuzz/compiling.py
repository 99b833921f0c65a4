"""Schemas, expressions and grammars through the guard and the compiler of a target, in a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from fuzz.grammars import random_grammar
from fuzz.protos import garble
from fuzz.surface import HANG_S
from pilotfish.config import Config
from pilotfish.models.store.pull import pull_tokenizer
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import Grammar, GrammarKind

MAX_END_CHARS = 80
"""Of what became of a grammar: refusals go on to quote it."""


class CompilingSurface:
    """An input is the grammar's kind, a line's end, and its text."""

    name = "grammars"

    def make(self, rng: random.Random) -> bytes:
        return _packed(random_grammar(rng))

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        kind, _, text = data.partition(b"\n")
        return kind + b"\n" + garble(rng, text, other.partition(b"\n")[2])

    def size(self, data: bytes) -> int:  # noqa: ARG002
        return 1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        config = Config()
        folder = pull_tokenizer(config.target.model, config.cache_dir)
        tokenizer = Tokenizer.load(folder)
        numbers = map(str, (tokenizer.vocab_size, *sorted(tokenizer.eos_token_ids)))
        self._target = Target([str(folder), *numbers])
        try:
            yield
        finally:
            self._target.close()

    async def run(self, data: bytes) -> set[str]:
        kind, _, text = data.partition(b"\n")
        # Texts come over gRPC or as JSON: what is no UTF-8 never gets here, but half of a pair does.
        grammar = Grammar(GrammarKind[kind.decode()], text.decode("utf-8", "replace"))
        return {f"{kind.decode()} {self._target.ask(grammar)}"[:MAX_END_CHARS]}


class Target:
    """The process; another one after it has died."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection

    def ask(self, grammar: Grammar) -> str:
        """What became of the grammar. Raises RuntimeError when the process has died of it, TimeoutError."""
        if self._process is None:
            self._start()
        assert self._process is not None
        try:
            self._connection.send_bytes(msgspec.msgpack.encode(grammar))
            if not self._connection.poll(HANG_S):
                self.close()
                raise TimeoutError("the target does not answer")
            return str(self._connection.recv())
        except (EOFError, ConnectionError):
            status = self._process.wait()
            self.close()
            raise RuntimeError(f"the target's process has died with status {status}") from None

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        script = Path(__file__).with_name("grammar_target.py")
        with theirs:
            command = [sys.executable, str(script), str(theirs.fileno()), *self._arguments]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._connection.close()


def _packed(grammar: Grammar) -> bytes:
    return f"{grammar.kind.name}\n{grammar.text}".encode("utf-8", "replace")
