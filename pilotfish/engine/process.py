"""An engine in a process of its own, seen from the process that serves gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq

from pilotfish.config import Config, config_to_yaml
from pilotfish.engine.event_queue import EventQueue
from pilotfish.engine.wire import Failed, Greeting, Ready, Role, Setup, encoder, greeting_decoder, output_decoder
from pilotfish.errors import ResourceExhaustedError, UnavailableError, error_named
from pilotfish.messages import Command, Event
from pilotfish.types import Limits, LoadReport, ModelInfo

logger = logging.getLogger(__name__)

WORKER_MODULE = "pilotfish.engine.worker"
STOP_GRACE_S = 5.0
"""An engine whose standard input has ended gets this long before it is killed."""
MAX_UNREAD_MESSAGES = 10_000
"""Batches of commands that wait for an engine that is in a long step."""
_KEPT_ERROR_LINES = 20
_MAX_SOCKET_PATH_BYTES = 100
"""Unix sockets allow 107."""


class ProcessEngine:
    """An EngineClient. Made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, socket: zmq.Socket[bytes], folder: Path) -> None:
        self._process = process
        self._socket = socket
        self._folder = folder
        self._error_lines: deque[str] = deque(maxlen=_KEPT_ERROR_LINES)
        self._queue = EventQueue()
        self._load = LoadReport()
        self._ready: Ready | None = None
        self._relay = asyncio.create_task(self._relay_errors())
        self._watch = asyncio.create_task(self._watch_exit())
        self._loop = asyncio.get_running_loop()
        self._setup = b""
        self._greeted: asyncio.Future[Greeting] = self._loop.create_future()

    @classmethod
    async def start(cls, config: Config, role: Role, *, worker_module: str = WORKER_MODULE) -> ProcessEngine:
        """Start the process and wait until its model is loaded, however long that takes.

        Raises: the PilotfishError that the engine failed with; UnavailableError when it died.
        """
        folder = _socket_folder()
        context = zmq.Context()
        socket = context.socket(zmq.PAIR)
        try:
            socket.setsockopt(zmq.SNDHWM, MAX_UNREAD_MESSAGES)
            socket.setsockopt(zmq.RCVHWM, 0)
            endpoint = f"ipc://{folder}/engine"
            socket.bind(endpoint)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", worker_module, "--endpoint", endpoint, "--role", role),
                stdin=asyncio.subprocess.PIPE,  # its end tells the engine that we are gone
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except BaseException:
            _release(socket, folder)
            raise
        self = cls(process, socket, folder)
        try:
            await self._greet(Setup(config_to_yaml(config), role))
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def model(self) -> ModelInfo:
        return self._greeting.model

    @property
    def limits(self) -> Limits:
        return self._greeting.limits

    @property
    def load(self) -> LoadReport:
        return self._load

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, commands: Sequence[Command]) -> None:
        """See EngineClient. Raises ResourceExhaustedError when the engine has stopped reading."""
        self._queue.raise_if_failed()
        try:
            self._socket.send(encoder.encode(commands), zmq.NOBLOCK)
        except zmq.Again:
            message = f"the engine does not read: {MAX_UNREAD_MESSAGES} batches wait for it"
            raise ResourceExhaustedError(message) from None
        self._check_for_output()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._queue.fail(UnavailableError("the engine was closed"))
        try:
            await self._end_process()
        finally:
            self._relay.cancel()
            self._watch.cancel()
            self._greeted.cancel()
            if not self._socket.closed:
                self._loop.remove_reader(self._socket.fileno())
            _release(self._socket, self._folder)
            await asyncio.gather(self._relay, self._watch, return_exceptions=True)

    @property
    def _greeting(self) -> Ready:
        assert self._ready is not None, "start() waits for it"
        return self._ready

    async def _greet(self, setup: Setup) -> None:
        self._setup = encoder.encode(setup)
        self._loop.add_reader(self._socket.fileno(), self._read)
        self._read()
        await asyncio.wait((self._greeted, self._watch), return_when=asyncio.FIRST_COMPLETED)
        # The last words may have come together with the exit.
        self._read()
        if not self._greeted.done():
            self._queue.raise_if_failed()
        greeting = self._greeted.result()
        if isinstance(greeting, Failed):
            raise error_named(greeting.kind, greeting.message)
        self._ready = greeting

    def _check_for_output(self) -> None:
        # ZMQ's descriptor is edge-triggered and any call on the socket may swallow the edge.
        if int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Send what the engine waits for, once it has connected; take every message that is there."""
        if self._setup and not self._socket.closed:
            with contextlib.suppress(zmq.Again):
                self._socket.send(self._setup, zmq.NOBLOCK)
                self._setup = b""
        while not self._socket.closed:
            try:
                message = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(message)

    def _take(self, message: bytes) -> None:
        try:
            if not self._greeted.done():
                self._greeted.set_result(greeting_decoder.decode(message))
                return
            output = output_decoder.decode(message)
        except msgspec.MsgspecError as error:
            self._queue.fail(UnavailableError(f"the engine process talks nonsense: {error}"))
            return
        self._load = output.load
        self._queue.put(output.events)

    async def _relay_errors(self) -> None:
        """Standard error of the engine goes on to ours; its last lines are kept for the message."""
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # asyncio drops a line beyond its limit; who stops reading would block the engine
                line = b"(a very long line)\n"
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._error_lines.append(text)
            logger.info("engine: %s", text)

    async def _watch_exit(self) -> None:
        status = await self._process.wait()
        await asyncio.wait((self._relay,), timeout=1.0)
        last_line = next((line for line in reversed(self._error_lines) if line.strip()), "it said nothing")
        cause = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self._queue.fail(UnavailableError(f"the engine process {cause}: {last_line}"))

    async def _end_process(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await self._process.wait()
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            if not isinstance(error, TimeoutError):
                raise


def _socket_folder() -> Path:
    """A new folder that only this user may enter (mode 700), with a path short enough for a socket."""
    folder = tempfile.mkdtemp(prefix="pilotfish-")
    if len(folder.encode()) + len("/engine") > _MAX_SOCKET_PATH_BYTES:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="pilotfish-", dir="/tmp")
    return Path(folder)


def _release(socket: zmq.Socket[bytes], folder: Path) -> None:
    socket.context.destroy(linger=0)
    shutil.rmtree(folder, ignore_errors=True)
