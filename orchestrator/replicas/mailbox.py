"""Where the messages of one sequence on one replica arrive."""

from __future__ import annotations

import contextlib
import time
from typing import Protocol, cast

from orchestrator.rounds.commands import Arrived, Event, Lost
from orchestrator.rounds.peer import Peer, Replica
from pilotfish.errors import InternalError, PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import CloseSequence, Command
from pilotfish.messages import Event as Message

ANSWER_DEADLINE_S = 300.0
"""Deadline of one event, queueing and prefill included. A frozen replica is noticed far earlier, by its silence."""


class Receiver(Protocol):
    """A sequence as the link to its replica sees it. Called on the event loop."""

    def deliver(self, event: Message) -> None:
        """A message, in order of arrival."""

    def fail(self, error: PilotfishError) -> None:
        """Nothing more will come."""

    def fail_if_overdue(self) -> None:
        """Asked every few seconds: time to fail if something should have come long ago."""


class Link(Replica, Protocol):
    """The connection to one replica, as its sequences use it."""

    @property
    def num_sequences(self) -> int:
        """Sequences of this orchestrator on the replica."""

    def attach(self, sequence_id: int, receiver: Receiver) -> None:
        """Route the sequence's messages to `receiver`."""

    def detach(self, sequence_id: int) -> None:
        """Stop routing. Idempotent."""

    def send(self, command: Command) -> None:
        """Queue a command without blocking. Raises UnavailableError or ResourceExhaustedError."""

    def report_failure(self, reason: str) -> None:
        """A sequence was served badly; enough of these in a row and the replica is left alone for a while."""

    def report_success(self) -> None:
        """A sequence was served well."""

    def report_draining(self) -> None:
        """A sequence was turned away because the replica drains."""

    def report_full(self) -> None:
        """A sequence was turned away because all places of the replica are taken."""


class Events(Protocol):
    """Who hears of what arrives."""

    def post(self, event: Event) -> None: ...

    def fail_if_overdue(self, mailbox: Mailbox) -> None: ...


class Mailbox:
    """A Receiver. Every one that is made must be closed."""

    def __init__(self, peer: Peer, events: Events, max_unread: int) -> None:
        """max_unread: messages that may wait; more mean that the replica is broken."""
        self.peer = peer
        self.link = cast("Link", peer.replica)  # those of a pool are links
        self.num_unread = 0
        self._events = events
        self._max_unread = max_unread
        self._is_failed = False
        self.link.attach(peer.sequence_id, self)

    @property
    def is_usable(self) -> bool:
        # Not on the stream that follows a lost one: that replica has never heard of it.
        return not self._is_failed and self.link.is_connected

    def send(self, command: Command, *, is_optional: bool = False) -> None:
        """Never raises: where it cannot be sent, nothing more will come; an optional one is dropped."""
        if self._is_failed:
            return
        try:
            self.link.send(command)
        except ResourceExhaustedError as error:
            if not is_optional:
                self.fail(UnavailableError(f"replica {self.link.replica_id} does not read: {error}"))
        except PilotfishError as error:
            self.fail(error)

    def deliver(self, event: Message) -> None:
        if self._is_failed:
            return
        if self.num_unread == self._max_unread:
            self.fail(InternalError(f"replica {self.link.replica_id} sent more than it was asked for"))
            return
        self.num_unread += 1
        self._events.post(Arrived(self.peer, event, time.monotonic(), self.link.load))

    def fail(self, error: PilotfishError) -> None:
        """The first reason counts."""
        if not self._is_failed:
            self._is_failed = True
            self._events.post(Lost(self.peer, error))

    def fail_if_overdue(self) -> None:
        self._events.fail_if_overdue(self)

    def close(self, *, is_finished: bool = False) -> None:
        """Free what the replica holds for the sequence; is_finished: see CloseSequence. Called once; never raises."""
        if self.link.is_connected:
            # A stream that is going down releases the sequence as well.
            with contextlib.suppress(PilotfishError):
                self.link.send(CloseSequence(self.peer.sequence_id, is_finished))
        self.link.detach(self.peer.sequence_id)
