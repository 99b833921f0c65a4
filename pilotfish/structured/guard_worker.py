"""The guard's process: `python -m pilotfish.structured.guard_worker DESCRIPTOR FOLDER VOCAB_SIZE EOS_TOKEN_ID...`.

It loads the vocabulary, and then forks for every grammar: the child compiles it within limits and may die of it, this
process waits and reports. It ends when the other end of its connection does.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Collection
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from llguidance import LLTokenizer

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import compile_grammar, load_vocabulary
from pilotfish.types import Grammar

MAX_CPU_S = 1.0
"""Processor time for compiling a grammar; 500 properties take 0.05."""
MAX_BYTES = 128 * 2**20
"""Memory that a grammar may take while it is compiled; 500 properties take 5 MB."""
MAX_WAIT_S = 30.0
"""Time for a child that takes no processor time: it hangs, or the machine does."""
STACK_BYTES = 4 * 2**20
"""A quarter of what the compiling thread of an engine has: see GrammarCompiler."""


class GuardVerdict(msgspec.Struct, frozen=True):
    """What became of a check."""

    refusal: str = ""
    """Empty: the grammar can be used."""
    death_signal: int = 0
    """What the compiling process died of; 0: it lived, or ended in another way, which is no fault of the grammar's."""
    failure: str = ""
    """Why nothing is known of the grammar."""
    num_bytes: int = 0
    """About what the compiled grammar takes."""


def serve(connection: Connection, vocabulary: LLTokenizer) -> None:
    """Check grammars until the other end closes."""
    decoder = msgspec.msgpack.Decoder(Grammar)
    while True:
        try:
            grammar = decoder.decode(connection.recv_bytes())
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            connection.send_bytes(msgspec.msgpack.encode(_check(grammar, vocabulary)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            connection.send_bytes(msgspec.msgpack.encode(GuardVerdict(death_signal=os.WTERMSIG(status))))
        elif status != 0:
            connection.send_bytes(msgspec.msgpack.encode(GuardVerdict(failure=f"exit status {os.WEXITSTATUS(status)}")))


def _check(grammar: Grammar, vocabulary: LLTokenizer) -> GuardVerdict:
    """Compile within the limits; what goes beyond them ends this process."""
    # What the library says when it dies: callers learn it by the signal, and must not be able to fill a log.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT_S)
    size_bytes, private_bytes = _memory_bytes()
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_STACK, STACK_BYTES)
    _limit(resource.RLIMIT_AS, size_bytes + MAX_BYTES)
    try:
        compile_grammar(vocabulary, grammar)
        return GuardVerdict(num_bytes=_memory_bytes()[1] - private_bytes)
    except InvalidRequestError as error:
        return GuardVerdict(refusal=str(error))
    except MemoryError:
        return GuardVerdict(death_signal=signal.SIGABRT)
    except BaseException as error:  # a panic of the library is no Exception
        return GuardVerdict(refusal=f"the grammar library failed: {type(error).__name__}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit(kind: int, most: int) -> None:
    """Set the limit to `most`, but to no more than this process may have."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _memory_bytes() -> tuple[int, int]:
    """(address space, resident and of no file) of this process."""
    size, resident, shared = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split()[:3])
    return size * resource.getpagesize(), (resident - shared) * resource.getpagesize()


def main(descriptor: int, folder: Path, vocab_size: int, eos_token_ids: Collection[int]) -> None:
    # Ctrl-C reaches the whole process group; the other end decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(descriptor) as connection:
        serve(connection, load_vocabulary(folder, vocab_size, eos_token_ids))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(argument) for argument in sys.argv[4:]])
