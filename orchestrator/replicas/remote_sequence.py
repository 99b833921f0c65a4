"""One sequence on one replica: its id there, what was sent, and what came back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pilotfish.errors import DeadlineExceededError, InternalError, PilotfishError
from pilotfish.messages import CloseSequence, Command, Event, Verdict, join_plain
from pilotfish.step_table import StepTable
from pilotfish.types import Limits, LoadReport, ModelInfo

ANSWER_DEADLINE_S = 300.0
"""For one event, queueing and prefill included. A frozen replica is noticed far earlier, by its silence."""


class Mailbox(Protocol):
    """A sequence, as the link to its replica sees it. Called on the event loop."""

    def deliver(self, event: Event) -> None:
        """An event, in order of arrival."""

    def fail(self, error: PilotfishError) -> None:
        """Nothing more will come."""

    def fail_if_overdue(self) -> None:
        """Asked every few seconds: time to fail if something should have come long ago."""


class Link(Protocol):
    """The connection to one replica, as its sequences see it."""

    @property
    def replica_id(self) -> str: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def is_healthy(self) -> bool:
        """Connected, not draining, and not failing round after round."""

    @property
    def model(self) -> ModelInfo:
        """What the replica serves. Raises UnavailableError while it is not connected."""

    @property
    def limits(self) -> Limits:
        """Limits of the replica. Raises UnavailableError while it is not connected."""

    @property
    def load(self) -> LoadReport: ...

    @property
    def step_table(self) -> StepTable:
        """What its steps take, as it told last."""

    @property
    def num_sequences(self) -> int:
        """Sequences of this orchestrator on the replica."""

    @property
    def num_other_sequences(self) -> int:
        """Sequences of other orchestrators there, as of its last reports."""

    def serves(self, sequence_id: int) -> bool:
        """Whether an open sequence should stay: not on a replica that drains, or fails while others try it again."""

    def attach(self, sequence: Mailbox) -> int:
        """Route events to `sequence`; returns the id it has on this replica, never used before."""

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


class RemoteSequence:
    """A mailbox on a replica. Every one that is made must be closed."""

    def __init__(self, link: Link, *, max_events: int, on_arrival: Callable[[Event], None] | None = None) -> None:
        """Attach to `link`; more than `max_events` unread events mean a replica out of its mind.

        on_arrival: hears of every event before anybody receives it.
        """
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._failure: PilotfishError | None = None
        self._arrival: asyncio.Future[None] | None = None
        """What `receive` waits for."""
        self._waits_since_s = 0.0
        self._max_events = max_events
        self._on_arrival = on_arrival
        self._is_closed = False
        self.link = link
        self.sequence_id = link.attach(self)
        self.known_length = 0
        """Committed tokens that the replica has been told."""
        self.cut_in_lengths: set[int] = set()
        """Committed tokens that drafts stand on which were sent into a decode run."""
        self.last_sent_s = 0.0
        self.last_arrival_s = 0.0
        """On time.monotonic(): uvloop's clock knows only whole milliseconds. An event arrives when the stream reads it,
        not when `receive` returns it."""
        self.load = link.load
        """As the replica told with the last arrival."""

    @property
    def is_usable(self) -> bool:
        # Not on the stream that follows a lost one: that replica has never heard of it.
        return not self._is_closed and self._failure is None and self.link.is_connected

    @property
    def is_welcome(self) -> bool:
        """Usable, and on a replica that is worth staying on."""
        return self.is_usable and self.link.serves(self.sequence_id)

    def send(self, command: Command) -> None:
        """Raises UnavailableError when the replica is gone, ResourceExhaustedError when it is swamped."""
        self.last_sent_s = time.monotonic()
        self.link.send(command)

    async def receive(self) -> Event:
        """The next event, for one caller at a time; plain steps that wait together are one. Cancelling loses nothing.

        Raises the PilotfishError that ended the connection, or DeadlineExceededError.
        """
        while not self._events:
            if self._failure is not None:
                raise self._failure
            self._arrival, self._waits_since_s = self._loop.create_future(), time.monotonic()
            await self._arrival
        event = self._events.popleft()
        return self._with_plain_steps_after(event) if self._events and isinstance(event, Verdict) else event

    @property
    def has_waiting_verdict(self) -> bool:
        """Whether `receive` has a verdict at hand."""
        return bool(self._events) and isinstance(self._events[0], Verdict)

    def _with_plain_steps_after(self, verdict: Verdict) -> Verdict:
        verdicts = [verdict]
        while self._events:
            following = self._events[0]
            if not isinstance(following, Verdict) or not following.continues_plainly(verdicts[-1]):
                break
            verdicts.append(following)
            self._events.popleft()
        return verdict if len(verdicts) == 1 else join_plain(verdicts)

    def arrived(self) -> list[Event]:
        """All events that came and were not received, without waiting."""
        events = list(self._events)
        self._events.clear()
        return events

    def deliver(self, event: Event) -> None:
        """Called by the link, in order of arrival."""
        self.last_arrival_s = time.monotonic()
        self.load = self.link.load
        if self._failure is not None:
            return
        if len(self._events) == self._max_events:
            self.fail(InternalError(f"replica {self.link.replica_id} sent more than it was asked for"))
            return
        self._events.append(event)
        if self._on_arrival is not None:
            self._on_arrival(event)
        self._wake()

    def fail(self, error: PilotfishError) -> None:
        """Called by the link: nothing more will come. The first reason stays."""
        self._failure = self._failure or error
        self._wake()

    def fail_if_overdue(self) -> None:
        """Called by the link every few seconds: cheaper than a timer for each event."""
        is_waiting = self._arrival is not None and not self._arrival.done()
        if is_waiting and time.monotonic() - self._waits_since_s > ANSWER_DEADLINE_S:
            message = f"replica {self.link.replica_id} sent nothing for {ANSWER_DEADLINE_S:.0f} s"
            self.fail(DeadlineExceededError(message))

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def close(self) -> None:
        """Free what the replica holds for the sequence. Idempotent; never raises."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.link.is_connected:
            # A stream that is going down releases the sequence as well.
            with contextlib.suppress(PilotfishError):
                self.link.send(CloseSequence(sequence_id=self.sequence_id))
        self.link.detach(self.sequence_id)
