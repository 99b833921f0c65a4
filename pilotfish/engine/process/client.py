"""The seams of an engine: what a replica's gRPC front sees of it, and what its own process does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pilotfish.messages import Command, Event
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

    def send(self, commands: Sequence[Command]) -> None:
        """Queue commands, in order, without blocking. Raises UnavailableError once the engine is gone."""

    async def receive(self) -> Sequence[Event]:
        """The next batch of events, never empty. Raises UnavailableError once the engine is gone.

        One caller at a time. Cancelling it loses no event.
        """

    async def close(self) -> None:
        """Stop the engine and release what it holds. Idempotent."""


WAITING_POLL_S = 0.001
"""A core that waits for a thread of its own is looked at this often."""


class Core(Protocol):
    """The interface of pilotfish.engine.core.engine_core.EngineCore."""

    model: ModelInfo
    limits: Limits

    @property
    def has_work(self) -> bool: ...

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a thread of its own and may soon have work without a command."""
        ...

    def submit(self, command: Command) -> None: ...

    def step(self, max_rows: int | None = None) -> list[Event]: ...

    def load(self) -> LoadReport: ...
