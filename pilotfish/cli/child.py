"""One child process of `pilotfish up`: its lines, its end, and that it cannot outlive us."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

STOP_TIMEOUT_S = 25.0
LINE_LIMIT_BYTES = 1024 * 1024
_PR_SET_PDEATHSIG = 1
_READY_LINE = re.compile(r"^(?P<service>\w+) ready on (?P<address>\S+)")


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """What to run."""

    name: str
    argv: Sequence[str]
    services: frozenset[str]
    """Services whose ready lines it prints."""
    essential: bool = True
    """False: when it ends it is started again; the others go on without it."""


class Child:
    """A process in a session of its own.

    Its own session keeps the terminal's Ctrl-C away from it: we decide the order in which children
    stop. The kernel sends it SIGTERM should we be killed (Linux).
    """

    def __init__(self, spec: ChildSpec, process: asyncio.subprocess.Process, pumps: list[asyncio.Task[None]]) -> None:
        self.spec = spec
        self._process = process
        self._pumps = pumps
        self.last_error = ""
        """The last line of its stderr."""

    @classmethod
    async def start(
        cls,
        spec: ChildSpec,
        environment: Mapping[str, str],
        on_line: Callable[[str, str], None],
        on_ready: Callable[[str, str], None],
    ) -> Child:
        """Start it. on_line(name, line) for each line, on_ready(service, address) for each ready line."""
        process = await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            limit=LINE_LIMIT_BYTES,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()) if sys.platform == "linux" else None,
        )
        pumps: list[asyncio.Task[None]] = []
        child = cls(spec, process, pumps)

        async def pump(stream: asyncio.StreamReader, is_error: bool) -> None:
            async for raw in stream:
                line = raw.decode(errors="replace").rstrip()
                ready = None if is_error else _READY_LINE.match(line)
                if is_error and line:
                    child.last_error = line
                on_line(spec.name, line)
                if ready and ready["service"] in spec.services:
                    on_ready(ready["service"], ready["address"])

        assert process.stdout is not None
        assert process.stderr is not None
        child._pumps += [
            asyncio.create_task(pump(process.stdout, False)),
            asyncio.create_task(pump(process.stderr, True)),
        ]
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Wait for its end and its last lines; returns the exit status, negative for a signal."""
        status = await self._process.wait()
        # Its descendants may hold the pipes open: they end with it.
        self._signal_session(signal.SIGKILL)
        await asyncio.gather(*self._pumps)
        return status

    async def stop(self, force: asyncio.Event) -> None:
        """SIGTERM, then SIGKILL after STOP_TIMEOUT_S or as soon as `force` is set."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            forced = asyncio.create_task(force.wait())
            ended = asyncio.create_task(self._process.wait())
            await asyncio.wait({forced, ended}, timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            forced.cancel()
            ended.cancel()
            self._signal_session(signal.SIGKILL)
        await self.wait()

    def _signal_session(self, number: signal.Signals) -> None:
        # The child leads a process group of its own id, which outlives it as long as members do.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _die_with_parent(parent_pid: int) -> Callable[[], None]:
    """A function for the forked child: ask the kernel for SIGTERM when the parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:  # it ended before we asked
            os._exit(1)

    return arrange
