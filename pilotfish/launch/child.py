"""One child process of `pilotfish up`: its lines and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

STOP_TIMEOUT_S = 25.0
_STDOUT, _STDERR = 1, 2
_READY_LINE = re.compile(r"^(?P<service>\w+) ready on (?P<address>\S+)")

LineCallback = Callable[[str, str], None]
ReadyCallback = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """What to run."""

    name: str
    argv: Sequence[str]
    services: frozenset[str]
    """Services whose ready lines it prints."""
    after: frozenset[str] = frozenset()
    """Services that must be ready before it starts."""
    essential: bool = True
    """False: when it ends it is started again; the others go on without it."""
    restarts_once_ready: bool = False
    """An essential one that has been ready is started again, too, and the others wait for it; one that has not is
    of no use to try again."""


class Child:
    """A process in a session of its own.

    Its own session keeps the terminal's Ctrl-C away from it: we decide the order in which children
    stop.
    """

    def __init__(self, spec: ChildSpec, transport: asyncio.SubprocessTransport, output: _Output) -> None:
        self.spec = spec
        self._transport = transport
        self._output = output

    @classmethod
    async def start(
        cls, spec: ChildSpec, environment: Mapping[str, str], on_line: LineCallback, on_ready: ReadyCallback
    ) -> Child:
        """Start it. on_line(name, line) for each line, on_ready(service, address) for each ready line."""
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Output(spec, on_line, on_ready),
            *spec.argv,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
        return cls(spec, transport, output)

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def last_error(self) -> str:
        """The last line of its stderr."""
        return self._output.last_error

    async def wait(self) -> int:
        """Wait for its end and its last lines; returns the exit status, negative for a signal."""
        await self._output.exited.wait()
        # Its descendants may hold the pipes open: they end with it.
        self._signal_session(signal.SIGKILL)
        await self._output.closed.wait()
        self._transport.close()
        status = self._transport.get_returncode()
        assert status is not None
        return status

    async def stop(self, force: asyncio.Event) -> None:
        """SIGTERM, then SIGKILL after STOP_TIMEOUT_S or as soon as `force` is set."""
        if not self._output.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._transport.terminate()
            forced, exited = asyncio.create_task(force.wait()), asyncio.create_task(self._output.exited.wait())
            await asyncio.wait({forced, exited}, timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            forced.cancel()
            exited.cancel()
            self._signal_session(signal.SIGKILL)
        await self.wait()

    def _signal_session(self, number: signal.Signals) -> None:
        # The child leads a process group of its own id, which outlives it as long as members do.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), number)


class _Output(asyncio.SubprocessProtocol):
    """Cuts a child's output into lines.

    Not asyncio's streams: before Python 3.12.4 their `wait` waits for the pipes too, which a
    descendant may hold open.
    """

    def __init__(self, spec: ChildSpec, on_line: LineCallback, on_ready: ReadyCallback) -> None:
        self._spec = spec
        self._on_line = on_line
        self._on_ready = on_ready
        self._partial = {_STDOUT: b"", _STDERR: b""}
        self.last_error = ""
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._partial[fd] = (self._partial[fd] + data).split(b"\n")
        for line in lines:
            self._take(fd, line)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for fd, rest in self._partial.items():
            if rest:
                self._take(fd, rest)
        self.closed.set()

    def _take(self, fd: int, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip()
        if fd == _STDERR and line:
            self.last_error = line
        self._on_line(self._spec.name, line)
        ready = _READY_LINE.match(line) if fd == _STDOUT else None
        if ready and ready["service"] in self._spec.services:
            self._on_ready(ready["service"], ready["address"])
