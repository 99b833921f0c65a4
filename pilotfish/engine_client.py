"""An engine as the process in front of it sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class Families(Protocol):
    """What an engine also is that serves peers of several tokenizers."""

    def model_for(self, tokenizer_fingerprint: str) -> ModelInfo | None:
        """The model as such peers see it; None: they are not served."""

    def assign(self, sequence_id: int, tokenizer_fingerprint: str) -> None:
        """The sequence with this id, which is about to be opened, is one of such a peer's, which are served."""
