"""An engine on a thread of the test's own process.

In production it would hold the interpreter's lock while it prepares a step, and gRPC would wait.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence

from pilotfish.engine.core.engine import WAITING_POLL_S, Engine
from pilotfish.engine.process.process_engine import EventQueue
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import EngineCommand, Event
from pilotfish.types import LoadReport

logger = logging.getLogger(__name__)


class ThreadedEngine:
    """An EngineClient. Must be made on a running event loop; the core is the thread's own from then on."""

    def __init__(self, core: Engine) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._queue = EventQueue()
        self.model, self.limits, self.load = core.model, core.limits, core.load()
        self._commands: list[EngineCommand] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def send(self, commands: Sequence[EngineCommand]) -> None:
        self._queue.raise_if_failed()
        with self._changed:
            self._commands.extend(commands)
            self._changed.notify()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        """Ends after the step that is being computed."""
        self._queue.fail(UnavailableError("the engine was closed"))
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._core.close)

    def _run(self) -> None:
        try:
            while self._take_commands():
                events = self._core.step() if self._core.has_work else []
                if events:
                    self._submit()
                    events = self._core.go_on(events)
                self._loop.call_soon_threadsafe(self._deliver, events, self._core.load())
        except Exception as error:
            logger.exception("the engine failed")
            failure = error if isinstance(error, PilotfishError) else UnavailableError(f"the engine failed: {error!r}")
            self._loop.call_soon_threadsafe(self._queue.fail, failure)

    def _take_commands(self) -> bool:
        """Submit what came, waiting for it when there is nothing to do. False when the engine is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._commands or self._core.has_work,
                timeout=WAITING_POLL_S if self._core.is_waiting else None,
            )
        self._submit()
        return not self._is_closed

    def _submit(self) -> None:
        with self._changed:
            commands, self._commands = self._commands, []
        for command in commands:
            self._core.submit(command)

    def _deliver(self, events: list[Event], load: LoadReport) -> None:
        self.load = load
        self._queue.put(events)
