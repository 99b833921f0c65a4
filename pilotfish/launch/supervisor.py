"""The children of `pilotfish up`, from their start until a signal comes or one that is needed dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pilotfish.errors import UnavailableError

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
    stop_timeout_s: float = 25.0
    """Time from SIGTERM to SIGKILL."""


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
        """SIGTERM, then SIGKILL when its time is up or as soon as `force` is set."""
        if not self._output.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._transport.terminate()
            forced, exited = asyncio.create_task(force.wait()), asyncio.create_task(self._output.exited.wait())
            timeout_s = self.spec.stop_timeout_s
            await asyncio.wait({forced, exited}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
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


RESTART_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits between the starts of a child that keeps ending; the last one repeats."""
HEALTHY_S = 60.0
"""A child that has run for so long does not keep ending: the waits begin anew."""


class Supervisor:
    """Starts the children as soon as they may; stops them in reverse order: who calls before who is called."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        environment: Mapping[str, str],
        on_line: Callable[[str, str], None],
        on_ready: Callable[[str, str], None],
    ) -> None:
        """on_line(child name, line) and on_ready(service, address) are called on the event loop."""
        self._specs = specs
        self._environment = environment
        self._on_line = on_line
        self._on_ready = on_ready
        self._ready = {service: asyncio.Event() for spec in specs for service in spec.services}
        self._children: dict[str, Child] = {}

    def pid(self, name: str) -> int:
        """The process of a child that has been started."""
        return self._children[name].pid

    async def run(self, stop: asyncio.Event, force: asyncio.Event) -> None:
        """Run until `stop` is set; no child is left when it returns or raises.

        Setting `force` as well ends a patient stop. Raises UnavailableError when an essential
        child ends.
        """
        keepers = [asyncio.create_task(self._keep(spec)) for spec in self._specs]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopped, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
        finally:
            for task in (stopped, *keepers):
                task.cancel()
            await asyncio.gather(stopped, *keepers, return_exceptions=True)
            for spec in reversed(self._specs):
                if spec.name in self._children:
                    await self._children[spec.name].stop(force)

    async def _keep(self, spec: ChildSpec) -> None:
        """Start a child; start it again as its spec says. Raises when an essential one ends."""
        for service in spec.after:
            await self._ready[service].wait()
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            started_s = loop.time()
            # Shielded: a cancellation here must not lose a process that was just started.
            start = asyncio.create_task(Child.start(spec, self._environment, self._on_line, self._note_ready))
            try:
                child = await asyncio.shield(start)
            except asyncio.CancelledError:
                self._children[spec.name] = await start
                raise
            self._children[spec.name] = child
            status = await child.wait()
            ending = f"was ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
            was_ready = all(self._ready[service].is_set() for service in spec.services)
            if spec.essential and not (spec.restarts_once_ready and was_ready):
                # Who was killed could not say why: its last line is of something else.
                detail = child.last_error.removeprefix("error: ") if status > 0 else ""
                raise UnavailableError(f"{spec.name} {ending}" + (f": {detail}" if detail else ""))
            if loop.time() - started_s >= HEALTHY_S:
                attempt = 0
            delay_s = RESTART_DELAYS_S[min(attempt, len(RESTART_DELAYS_S) - 1)]
            attempt += 1
            meanwhile = "wait for" if spec.essential else "go on without"
            self._on_line(spec.name, f"{ending}; requests {meanwhile} it, next start in {delay_s:g} s")
            await asyncio.sleep(delay_s)

    def _note_ready(self, service: str, address: str) -> None:
        self._ready[service].set()
        self._on_ready(service, address)
