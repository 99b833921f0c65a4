"""What goes into the machine and what comes out of it, as plain data."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from orchestrator.rounds.draft import Draft
from orchestrator.rounds.peer import Peer, Replica
from pilotfish.errors import PilotfishError
from pilotfish.messages import Command as Message
from pilotfish.messages import Event as ReplicaEvent
from pilotfish.messages import OpenSequence, Verdict
from pilotfish.types import LoadReport

Service = Literal["success", "failure", "full", "draining"]
"""How a replica served a sequence: `full` and `draining` turned it away."""
Alarm = Literal["deadline", "reading"]
"""What a time was asked for: the end of a wait for a draft, or a lookup's next slice of a long text."""


class Open(msgspec.Struct, frozen=True):
    """Listen to the peer's replica, and send the message that opens the sequence there."""

    peer: Peer
    message: OpenSequence


class Send(msgspec.Struct, frozen=True):
    """Send the message to the peer's replica."""

    peer: Peer
    message: Message
    is_optional: bool = False
    """Whether it may be dropped where the replica does not read."""


class Close(msgspec.Struct, frozen=True):
    """Free what the replica holds for the sequence, and stop listening."""

    peer: Peer
    cached_token_ids: tuple[int, ...] = ()
    """Tokens whose KV blocks stay there as a prefix cache, for the router to remember."""
    is_finished: bool = False
    """Whether the answer came to its end; see CloseSequence."""


class Acquire(msgspec.Struct, frozen=True):
    """Find a target replica with room; answered by Acquired or NotAcquired."""

    token_ids: tuple[int, ...]
    """The sequence's tokens: a replica's prefix cache may hold some."""
    avoid: frozenset[str]
    """Replicas to take only if there is no other."""
    is_continued: bool
    """Whether the answer has begun: then it waits for a place as long as it takes."""
    preferred: str = ""
    """The replica, by its id, to take among equals; empty: any."""


class Wake(msgspec.Struct, frozen=True):
    """Answer with Woken at this time; a later Wake replaces an earlier one of the same alarm."""

    at_s: float
    alarm: Alarm


class Report(msgspec.Struct, frozen=True):
    """Record with the replica's circuit how it served."""

    replica: Replica
    service: Service
    reason: str = ""


Command = Open | Send | Close | Acquire | Wake | Report


class AcceptedStep(NamedTuple):
    """A step of reasoning that stands."""

    draft: Draft
    verdict: Verdict
    """The verdict that commits the step."""


class Arrived(msgspec.Struct, frozen=True):
    """A message of the peer's replica."""

    peer: Peer
    message: ReplicaEvent
    at_s: float
    """When the stream read it."""
    load: LoadReport
    """The replica's last report then."""


class Lost(msgspec.Struct, frozen=True):
    """Nothing more will come of the peer."""

    peer: Peer
    error: PilotfishError


class Acquired(msgspec.Struct, frozen=True):
    """A replica that has room."""

    replica: Replica


class NotAcquired(msgspec.Struct, frozen=True):
    """No replica took the sequence in time."""

    error: PilotfishError


class Woken(msgspec.Struct, frozen=True):
    """The time has come that Wake named."""

    at_s: float
    alarm: Alarm


class StepWritten(msgspec.Struct, frozen=True):
    """A step of reasoning was written and judged."""

    step: AcceptedStep | None
    """The step that stands; None: the target writes the next one."""


Event = Arrived | Lost | Acquired | NotAcquired | Woken | StepWritten
