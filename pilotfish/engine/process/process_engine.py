"""An engine in a process of its own, seen from the process that serves gRPC."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterable, Sequence

import msgspec

from pilotfish.child import Child, tethered
from pilotfish.config import Config, config_to_yaml
from pilotfish.engine.process.wire import (
    EngineInput,
    Failed,
    Greeting,
    MessageReader,
    Role,
    Setup,
    encoder,
    framed,
    greeting_decoder,
    output_decoder,
)
from pilotfish.errors import PilotfishError, ResourceExhaustedError, UnavailableError, error_named
from pilotfish.installation import require
from pilotfish.messages import CloseSequence, EngineCommand, Event
from pilotfish.types import Limits, LoadReport, ModelInfo


class EventQueue:
    """Events in order, and the end. Not thread-safe: all calls on one event loop.

    Its size is bounded by what the commands sent can be answered with: Decode runs are finite.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._failure: PilotfishError | None = None
        self._changed = asyncio.Event()

    def put(self, events: Iterable[Event]) -> None:
        """Add events; ignored after `fail`."""
        if self._failure is None:
            self._events.extend(events)
            if self._events:
                self._changed.set()

    def fail(self, error: PilotfishError) -> None:
        """Nothing follows: `receive` raises once the queue is empty. The first reason stays."""
        self._failure = self._failure or error
        self._changed.set()

    def raise_if_failed(self) -> None:
        """Raises UnavailableError after `fail`."""
        if self._failure is not None:
            raise UnavailableError(str(self._failure))

    async def receive(self) -> list[Event]:
        """All events that are there, at least one. Cancelling loses none. Raises UnavailableError after `fail`."""
        await self._changed.wait()
        if self._events:
            events, self._events = self._events, []
            if self._failure is None:
                self._changed.clear()
            return events
        self.raise_if_failed()
        raise AssertionError("woken without events or failure")


logger = logging.getLogger(__name__)

WORKER_MODULE = "pilotfish.engine.process.worker"
_READ_S = 0.1
_OVERSLEPT_S = 1.0
STOP_GRACE_S = 5.0
"""Time from SIGTERM to SIGKILL."""
START_TIMEOUT_S = 7200.0
"""Time for an engine to be ready: it may download its model first."""
MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Bytes of commands that wait for an engine that is in a long step, at most."""


class ProcessEngine(asyncio.Protocol):
    """An EngineClient. Made by `start`."""

    def __init__(self) -> None:
        self._child: Child
        self._transport: asyncio.Transport
        self._watch: asyncio.Task[None]
        self._alarm: asyncio.Task[None] | None = None
        self._heard_s = 0.0
        """When the engine last said something, on the monotonic clock."""
        self._reader = MessageReader()
        self._disconnected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing more can come."""
        self._queue = EventQueue()
        self.model: ModelInfo
        self.limits: Limits
        self.load = LoadReport()
        self._greeted: asyncio.Future[Greeting] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, config: Config, role: Role, *, rank_folder: str = "", worker_module: str = WORKER_MODULE
    ) -> ProcessEngine:
        """Start the process and wait until its model is loaded. From then on its silence ends it: see wire.Ready.

        rank_folder: see wire.Setup.
        Raises: ConfigError without torch; the PilotfishError that the engine failed with; UnavailableError when it
        died, or is not ready after START_TIMEOUT_S.
        """
        require("torch", f"the {role} service's model")
        self = cls()
        await self._spawn(role, worker_module)
        try:
            await self._greet(Setup(config_to_yaml(config), rank_folder))
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, commands: Sequence[EngineCommand]) -> None:
        """See EngineClient. Raises ResourceExhaustedError when the engine has stopped reading.

        Closing is never refused: a sequence that is forgotten here must not live on in the engine.
        """
        self._queue.raise_if_failed()
        only_closes = all(isinstance(command, CloseSequence) for command in commands)
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES and not only_closes:
            raise ResourceExhaustedError(f"the engine does not read: {MAX_UNREAD_BYTES} bytes wait for it")
        self._transport.write(framed(encoder.encode(EngineInput(list(commands), time.monotonic_ns()))))

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._queue.fail(UnavailableError("the engine was closed"))
        if self._alarm is not None:
            self._alarm.cancel()
        try:
            await self._child.stop(STOP_GRACE_S)
        finally:
            self._transport.abort()
            self._greeted.cancel()
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _spawn(self, role: Role, worker_module: str) -> None:
        ours, engines = socket.socketpair()
        with engines:  # the child inherits its own
            self._transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
            try:
                argv = tethered(worker_module, "--socket", str(engines.fileno()), "--role", role)
                self._child = await Child.start(argv, _relay, pass_fds=(engines.fileno(),))
            except BaseException:
                self._transport.abort()
                raise
        self._watch = asyncio.create_task(self._watch_exit())

    async def _greet(self, setup: Setup) -> None:
        self._transport.write(framed(encoder.encode(setup)))
        ends = self._greeted, self._watch
        done, _ = await asyncio.wait(ends, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise UnavailableError(f"the engine process is not ready after {START_TIMEOUT_S:.0f} s; its log says why")
        if not self._greeted.done():
            self._queue.raise_if_failed()
        greeting = self._greeted.result()
        if isinstance(greeting, Failed):
            raise error_named(greeting.kind, greeting.message)
        self.model = greeting.model
        self.limits = greeting.limits
        self._heard_s = time.monotonic()
        if greeting.silence_timeout_s:
            self._alarm = asyncio.create_task(self._end_when_silent(greeting.silence_timeout_s))

    def data_received(self, data: bytes) -> None:
        self._heard_s = time.monotonic()
        try:
            for message in self._reader.feed(data):
                if not self._greeted.done():
                    self._greeted.set_result(greeting_decoder.decode(message))
                    continue
                output = output_decoder.decode(message)
                self.load = output.load
                self._queue.put(output.events)
        except msgspec.MsgspecError as error:
            self._queue.fail(UnavailableError(f"the engine process talks nonsense: {error}"))

    def connection_lost(self, _error: Exception | None) -> None:
        self._disconnected.set_result(None)

    async def _end_when_silent(self, timeout_s: float) -> None:
        while (left_s := self._heard_s + timeout_s - time.monotonic()) > 0:
            asleep_s = time.monotonic()
            await asyncio.sleep(left_s)
            if time.monotonic() - asleep_s > left_s + _OVERSLEPT_S:
                self._heard_s = time.monotonic()  # this process was stopped, and with its container the engine
            # What came meanwhile is read first.
            await asyncio.sleep(_READ_S)
        if self._watch.done():
            return
        error = f"the engine process hangs: it has said nothing for {timeout_s:g} s (engine.step_timeout_s)"
        logger.error("%s, and is ended", error)
        self._queue.fail(UnavailableError(error))
        await self._child.stop(0.0)  # what hangs would not end for a SIGTERM; nor would ranks

    async def _watch_exit(self) -> None:
        status = await self._child.wait()
        await asyncio.wait((self._disconnected,), timeout=1.0)  # its last words
        cause = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self._queue.fail(UnavailableError(f"the engine process {cause}: {self._child.last_error or 'it said nothing'}"))


def _relay(line: str, is_error: bool) -> None:
    """Standard error of the engine goes on to ours."""
    if is_error:
        logger.info("engine: %s", line)
