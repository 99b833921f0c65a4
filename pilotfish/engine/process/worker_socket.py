"""The engine's end of the socket to its front, with which it ends."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading

from pilotfish.engine.process.wire import MessageReader, framed

_MAX_READ_BYTES = 1 << 18


class WorkerSocket:
    """Whole messages over an inherited descriptor. Blocking: the engine has nothing else to do.

    `send` and `receive` raise SystemExit when the front is gone, since nobody is left to work for.
    """

    def __init__(self, descriptor: int) -> None:
        # The front may have had a thousand descriptors when it made this one; select() knows no larger ones.
        self._socket = socket.socket(fileno=os.dup(descriptor))
        os.close(descriptor)
        self._reader = MessageReader()

    def send(self, message: bytes) -> None:
        """Waits while the front does not read."""
        try:
            self._socket.sendall(framed(message))
        except OSError:
            raise SystemExit(0) from None

    def receive(self, timeout_s: float | None = None) -> list[bytes]:
        """Every message that is there, after waiting timeout_s for a first (None: as long as it takes)."""
        messages: list[bytes] = []
        # poll() and epoll know whole milliseconds, of which eight are a step.
        while select.select((self._socket,), (), (), 0 if messages else timeout_s)[0]:
            messages += self._reader.feed(self._read())
        return messages

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_MAX_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            raise SystemExit(0)
        return data


def end_with_parent() -> None:
    """From now on end this process, whatever it computes, when its standard input ends: its parent holds the other
    side."""
    threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)
