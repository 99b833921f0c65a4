"""One sequence on one link, by hand: what a session's machine would open, send and hear."""

from __future__ import annotations

import time

from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.replicas.mailbox import Link
from orchestrator.rounds.commands import Arrived, Close, Lost, Open, Send
from orchestrator.rounds.peer import Peer
from pilotfish.messages import Command, Event, OpenSequence
from pilotfish.types import SamplingParams


class HeldSequence:
    """Attached to the link as soon as it is made; close it."""

    def __init__(self, link: Link, *, max_unread: int = 8, opening: OpenSequence | None = None) -> None:
        """opening: default a prompt of three tokens."""
        self.link = link
        self.exchange = ReplicaExchange(None, acquire_timeout_s=0, max_unread=max_unread)
        self.peer = Peer(link)
        self.sequence_id = self.peer.sequence_id
        message = opening or OpenSequence(self.sequence_id, (1, 2, 3), SamplingParams())
        self.exchange.run([Open(self.peer, message)])

    @property
    def is_usable(self) -> bool:
        return self.peer.is_usable

    @property
    def is_welcome(self) -> bool:
        return self.peer.is_welcome

    def send(self, command: Command) -> None:
        self.exchange.run([Send(self.peer, command)])

    async def receive(self) -> Event:
        """The next message. Raises the PilotfishError that ended the connection."""
        event = await self.exchange.next()
        if isinstance(event, Lost):
            self.peer.is_lost = True
            raise event.error
        assert isinstance(event, Arrived)
        assert event.at_s <= time.monotonic()
        return event.message

    def close(self) -> None:
        self.exchange.run([Close(self.peer)])
        self.exchange.close()
