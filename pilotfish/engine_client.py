"""An engine as the process in front of it sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilotfish.messages import EngineCommand, Event
from pilotfish.types import Limits, LoadReport, ModelInfo


class EngineClient(Protocol):
    """An engine as an asyncio process sees it: commands go in, batches of events come out.

    Sequence ids are the engine's: the front maps each peer's ids to its own so that two peers
    cannot meet. Implementations: a process behind a socket (production), a thread (tests), an emulation.
    """

    @property
    def model(self) -> ModelInfo: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def load(self) -> LoadReport:
        """The latest load report; updated with every batch of events."""

    def send(self, commands: Sequence[EngineCommand]) -> None:
        """Queue commands, in order, without blocking. Raises UnavailableError once the engine is gone."""

    async def receive(self) -> Sequence[Event]:
        """The next batch of events, never empty. Raises UnavailableError once the engine is gone.

        One caller at a time. Cancelling it loses no event.
        """

    async def close(self) -> None:
        """Stop the engine and release what it holds. Idempotent."""
