"""A target's use of grammars, in a process that may die of it: `grammar_target.py DESCRIPTOR FOLDER VOCAB_SIZE EOS...`.

Answers each grammar with what became of it: refused, and why; or compiled, and how far some allowed tokens led.
"""

from __future__ import annotations

import random
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.compiler import GrammarCompiler
from pilotfish.structured.grammar import load_vocabulary
from pilotfish.structured.guard import GrammarGuard
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import Grammar

NUM_TOKENS = 12
"""Of an answer."""


def serve(connection: Connection, compiler: GrammarCompiler) -> None:
    """Until the other end closes."""
    decoder = msgspec.msgpack.Decoder(Grammar)
    while True:
        try:
            grammar = decoder.decode(connection.recv_bytes())
        except EOFError:
            return
        try:
            compiled = compiler.compile(grammar).result()
        except InvalidRequestError as error:
            connection.send(f"refused: {error}")
        else:
            connection.send(_answer(GrammarMatcher(compiled.matcher.deep_copy(), num_prompt_tokens=1)))


def _answer(matcher: GrammarMatcher) -> str:
    """Tokens that the grammar allows, each after drafts that are rejected."""
    rng = random.Random(1)
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


def main(descriptor: int, folder: Path, vocab_size: int, eos_token_ids: list[int]) -> None:
    """See the module."""
    with Connection(descriptor) as connection:
        guard = GrammarGuard(folder, vocab_size, eos_token_ids)
        compiler = GrammarCompiler(lambda: load_vocabulary(folder, vocab_size, eos_token_ids), guard)
        try:
            serve(connection, compiler)
        finally:
            compiler.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(argument) for argument in sys.argv[4:]])
