"""What an engine's own process sees of it. What a replica's front sees: pilotfish.messages.EngineClient."""

from __future__ import annotations

from typing import Protocol

from pilotfish.messages import Command, Event
from pilotfish.types import Limits, LoadReport, ModelInfo

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
