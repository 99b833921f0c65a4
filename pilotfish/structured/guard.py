"""Grammars are compiled first where a crash, a hang or a gigabyte hurts nobody: in a process of the guard's own."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from pilotfish.errors import InvalidRequestError, UnavailableError
from pilotfish.structured.grammar import engine_grammar, name_of
from pilotfish.structured.guard_worker import MAX_BYTES, MAX_CPU_S, GuardVerdict
from pilotfish.types import Grammar

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 60.0
"""Time for an answer, the process's start and the loading of the vocabulary included; then it counts as lost."""

_WHY: dict[int, str] = {
    signal.SIGPROF: f"it takes more than {MAX_CPU_S:g} s to compile",
    signal.SIGABRT: f"it takes more than {MAX_BYTES >> 20} MB to compile, or breaks the grammar library",
}
"""Reasons by the signal that the compiling process died of."""
_NO_FAULT = (signal.SIGKILL, signal.SIGALRM, signal.SIGTERM)
"""Somebody or something else ended it."""
_decoder = msgspec.msgpack.Decoder(GuardVerdict)


class GrammarGuard:
    """Starts its process with the first grammar, and again where it was lost. Thread-safe; one check at a time."""

    def __init__(self, folder: Path, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        """Arguments as `load_vocabulary`'s."""
        self._arguments = [str(folder), str(vocab_size), *map(str, sorted(eos_token_ids))]
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._end: Callable[[], object] = lambda: None
        """Ends the process; called when nobody holds the guard any more, too."""
        self.num_deaths = 0
        """Compiling processes that died of a grammar."""

    def check(self, grammar: Grammar, *, param: str = "grammar") -> int:
        """About how many bytes the compiled grammar takes. Blocks: not for an event loop.

        Raises InvalidRequestError, with `param`, that says why the grammar cannot be used; UnavailableError when the
        guard itself fails.
        """
        engine_grammar(grammar, param=param)  # what is out of bounds needs no process
        with self._lock:
            verdict = self._ask(grammar)
        if verdict.failure or verdict.death_signal in _NO_FAULT:
            how = verdict.failure or signal.Signals(verdict.death_signal).name
            raise UnavailableError(f"the {name_of(grammar)} could not be checked: the process for it ended with {how}")
        if verdict.death_signal:
            self.num_deaths += 1
            name = signal.Signals(verdict.death_signal).name
            logger.warning("compiling a %s of %d characters died of %s", name_of(grammar), len(grammar.text), name)
            why = _WHY.get(verdict.death_signal, "the grammar library cannot compile it")
            raise InvalidRequestError(f"the {name_of(grammar)} cannot be used: {why}", param=param)
        if verdict.refusal:
            raise InvalidRequestError(verdict.refusal, param=param)
        return verdict.num_bytes

    def close(self) -> None:
        """End the process, whatever it does. Idempotent."""
        self._is_closed = True
        self._end()

    def _ask(self, grammar: Grammar) -> GuardVerdict:
        try:
            if self._connection is not None:
                try:
                    return self._asked(self._connection, grammar)
                except (OSError, EOFError) as error:
                    self._lose()  # it may have died while it had nothing to do
                    logger.warning("the process that checks grammars was lost: %r; another one is started", error)
            return self._asked(self._start(), grammar)
        except (OSError, EOFError) as error:
            self._lose()
            raise UnavailableError(f"the process that checks grammars was lost: {error!r}") from error

    def _asked(self, connection: Connection, grammar: Grammar) -> GuardVerdict:
        try:
            connection.send_bytes(msgspec.msgpack.encode(grammar))
        except BlockingIOError:  # see _start
            raise TimeoutError(f"it took in no grammar within {ANSWER_TIMEOUT_S:g} s") from None
        if not connection.poll(ANSWER_TIMEOUT_S):
            raise TimeoutError(f"no answer came within {ANSWER_TIMEOUT_S:g} s")
        return _decoder.decode(connection.recv_bytes())

    def _start(self) -> Connection:
        if self._is_closed:
            raise OSError("it was closed")
        ours, theirs = multiprocessing.Pipe()
        # Connections have no time limit for sending: a frozen process would hold up whoever sends a long grammar.
        with socket.socket(fileno=os.dup(ours.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(ANSWER_TIMEOUT_S), 0))
        with theirs:
            command = [sys.executable, "-m", "pilotfish.structured.guard_worker", str(theirs.fileno())]
            process = subprocess.Popen(
                [*command, *self._arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._connection = ours
        self._end = weakref.finalize(self, _end, ours, process)
        return ours

    def _lose(self) -> None:
        self._connection = None
        self._end()


def _end(connection: Connection, process: subprocess.Popen[bytes]) -> None:
    # The process first: whoever sends to it or waits for it is to find it gone, not the connection closed underneath.
    process.kill()
    process.wait()
    connection.close()
