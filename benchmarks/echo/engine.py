"""An EchoCore in the process that serves gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from echo.core import EchoCore

from pilotfish.engine.process.event_queue import EventQueue
from pilotfish.errors import UnavailableError
from pilotfish.messages import Command, Event
from pilotfish.types import Limits, LoadReport, ModelInfo


class EchoEngine:
    """An EngineClient: a step for every pass of the event loop that has work."""

    def __init__(self, core: EchoCore) -> None:
        self._core = core
        self._queue = EventQueue()
        self._is_step_due = False

    @property
    def model(self) -> ModelInfo:
        return self._core.model

    @property
    def limits(self) -> Limits:
        return self._core.limits

    @property
    def load(self) -> LoadReport:
        return self._core.load()

    def send(self, commands: Sequence[Command]) -> None:
        self._queue.raise_if_failed()
        for command in commands:
            self._core.submit(command)
        self._step_soon()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._queue.fail(UnavailableError("the engine was closed"))

    def _step_soon(self) -> None:
        if self._core.has_work and not self._is_step_due:
            self._is_step_due = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._is_step_due = False
        self._queue.put(self._core.step())
        self._step_soon()
