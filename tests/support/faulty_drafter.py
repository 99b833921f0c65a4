"""A draft engine that misbehaves in one chosen way: speculation must survive each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.event_queue import EventQueue
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import Command, Event, Proposal, Propose
from pilotfish.types import Limits, LoadReport, ModelInfo

Fault = Literal["slow", "silent", "garbage", "stale", "dies"]
"""slow: everything comes late. silent: no proposal comes. garbage: token ids that no vocabulary has.
stale: the base_length before the asked one. dies: the engine is gone while a proposal is awaited."""

GARBAGE_TOKEN_ID = 2**32 - 1


class FaultyDrafter:
    """An EngineClient around a working draft engine. Must be made on a running event loop."""

    def __init__(
        self,
        engine: EngineClient,
        fault: Fault,
        *,
        after_rounds: int = 0,
        delay_s: float = 2.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """The first after_rounds Propose commands are served soundly. delay_s: lateness of a slow drafter."""
        self._engine = engine
        self._fault = fault
        self._num_sound_rounds = after_rounds
        self._delay_s = delay_s
        self._sleep = sleep
        self._queue = EventQueue()
        self._is_faulty = after_rounds == 0
        self._task = asyncio.create_task(self._pump())

    @property
    def model(self) -> ModelInfo:
        return self._engine.model

    @property
    def limits(self) -> Limits:
        return self._engine.limits

    @property
    def load(self) -> LoadReport:
        return self._engine.load

    def send(self, commands: Sequence[Command]) -> None:
        self._queue.raise_if_failed()
        self._engine.send([command for command in commands if self._passes(command)])

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    async def close(self) -> None:
        self._task.cancel()
        self._queue.fail(UnavailableError("the engine was closed"))
        await asyncio.wait((self._task,))
        await self._engine.close()

    def _passes(self, command: Command) -> bool:
        if not isinstance(command, Propose):
            return True
        if self._num_sound_rounds > 0:
            self._num_sound_rounds -= 1
            return True
        self._is_faulty = True
        if self._fault == "dies":
            self._queue.fail(UnavailableError("the drafter died in the middle of a round"))
        return self._fault not in ("silent", "dies")

    async def _pump(self) -> None:
        try:
            while True:
                events = await self._engine.receive()
                if self._fault == "slow" and self._is_faulty:
                    await self._sleep(self._delay_s)
                self._queue.put(map(self._spoil, events))
        except PilotfishError as error:
            self._queue.fail(error)

    def _spoil(self, event: Event) -> Event:
        if not self._is_faulty or not isinstance(event, Proposal):
            return event
        if self._fault == "garbage":
            return msgspec.structs.replace(event, draft_token_ids=(GARBAGE_TOKEN_ID,) * len(event.draft_token_ids))
        if self._fault == "stale":
            return msgspec.structs.replace(event, base_length=max(0, event.base_length - 1))
        return event
