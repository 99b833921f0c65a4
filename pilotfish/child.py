"""Child processes: a module that runs in one of its own, and ends when the process that started it does.

`python -m pilotfish.child MODULE ...` runs a module that gets SIGTERM when its standard input ends: the parent holds
the other side, and loses it however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

OnLine = Callable[[str, bool], None]
"""Takes a line that a child has written, and whether to its standard error."""
_STDOUT, _STDERR = 1, 2
_MAX_LINE_BYTES = 65_536
"""Length from which a line is passed on in parts."""


def tethered(module: str, *arguments: str) -> list[str]:
    """The command line of a module that ends when its standard input does: give it a pipe."""
    # -u: ready lines must not wait in a buffer.
    return [sys.executable, "-u", "-m", __spec__.name, module, *arguments]


class Child(asyncio.SubprocessProtocol):
    """A process in a session of its own, whose output is cut into lines.

    Its own session keeps the terminal's Ctrl-C away from it, and what it has started ends with it. Not asyncio's
    streams: before Python 3.12.4 their `wait` waits for the pipes too, which a descendant may hold open.
    """

    def __init__(self, on_line: OnLine) -> None:
        self._on_line = on_line
        self._partial = {_STDOUT: b"", _STDERR: b""}
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()
        self._transport: asyncio.SubprocessTransport
        self.last_error = ""
        """The last line of its standard error that says anything."""

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        on_line: OnLine,
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Start it. environment: None is this process's."""
        transport, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(on_line),
            *argv,
            env=None if environment is None else dict(environment),
            pass_fds=pass_fds,
            start_new_session=True,
        )
        child._transport = transport
        return child

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    async def wait(self) -> int:
        """Wait for its end and its last lines; returns the exit status, negative for a signal."""
        await self._exited.wait()
        # Its descendants may hold the pipes open: they end with it.
        self._signal_session(signal.SIGKILL)
        await self._closed.wait()
        self._transport.close()
        status = self._transport.get_returncode()
        assert status is not None
        return status

    async def stop(self, timeout_s: float, force: asyncio.Event | None = None) -> None:
        """SIGTERM, then SIGKILL when its time is up, this is cancelled, or as soon as `force` is set. Idempotent."""
        if not self._exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._transport.terminate()
            ends = [asyncio.create_task(event.wait()) for event in (self._exited, force) if event is not None]
            try:
                await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                self._signal_session(signal.SIGKILL)
        await self.wait()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, rest = (self._partial[fd] + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:  # a progress bar, or what is no text: it is not kept until its end
            lines.append(rest)
            rest = b""
        self._partial[fd] = rest
        for line in lines:
            self._take(fd, line)

    def process_exited(self) -> None:
        self._exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for fd, rest in self._partial.items():
            if rest:
                self._take(fd, rest)
        self._closed.set()

    def _take(self, fd: int, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip()
        if fd == _STDERR and line:
            self.last_error = line
        self._on_line(line, fd == _STDERR)

    def _signal_session(self, number: signal.Signals) -> None:
        # The child leads a process group of its own id, which outlives it as long as members do.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), number)


def _end_with_input(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Tie this process to its standard input, then become the module."""
    _, module, *arguments = sys.argv
    # Whatever the module starts inherits nothing of it.
    descriptor, nothing = os.dup(sys.stdin.fileno()), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    threading.Thread(target=_end_with_input, args=(descriptor,), name="tether", daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
