"""The way back from an engine to its asyncio client, whatever runs the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import Event


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
