"""Which sequence of which peer is which of the engine's."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Generic, TypeVar

from pilotfish.messages import Event, SequenceError, Verdict
from pilotfish.types import SequenceErrorCode

PeerT = TypeVar("PeerT")


@dataclass(slots=True)
class OpenEntry(Generic[PeerT]):
    """One open sequence."""

    peer: PeerT
    peer_sequence_id: int
    """The peer's id; two peers may use the same."""
    engine_sequence_id: int
    """Unique among all peers."""
    has_events: bool = False
    """The engine took it: something other than an error came back."""
    is_learned_from: bool = False
    """The engine may keep its text."""

    def ends_with(self, event: Event) -> bool:
        """Whether the sequence is over after this event."""
        if isinstance(event, Verdict):
            return event.finish_reason is not None
        if not isinstance(event, SequenceError):
            return False
        if event.code is SequenceErrorCode.STALE:
            return False
        # INVALID refuses one item of a sequence that lives, or the opening of one that never did.
        return event.code is not SequenceErrorCode.INVALID or not self.has_events


class SequenceTable(Generic[PeerT]):
    """The open sequences of all peers of a replica."""

    def __init__(self) -> None:
        self._by_engine_id: dict[int, OpenEntry[PeerT]] = {}
        self._engine_ids = itertools.count(1)
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._by_engine_id)

    def open(self, peer: PeerT, peer_sequence_id: int) -> OpenEntry[PeerT]:
        """A new entry with an engine id that was never used."""
        entry = OpenEntry(peer, peer_sequence_id, next(self._engine_ids))
        self._by_engine_id[entry.engine_sequence_id] = entry
        self._is_empty.clear()
        return entry

    def find(self, engine_sequence_id: int) -> OpenEntry[PeerT] | None:
        return self._by_engine_id.get(engine_sequence_id)

    def remove(self, entry: OpenEntry[PeerT]) -> None:
        """Forget an entry. Idempotent."""
        self._by_engine_id.pop(entry.engine_sequence_id, None)
        if not self._by_engine_id:
            self._is_empty.set()

    async def wait_empty(self) -> None:
        """Waits until no sequence is open."""
        await self._is_empty.wait()
