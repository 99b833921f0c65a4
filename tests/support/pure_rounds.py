"""A request's machine over toy replicas, without a loop, a clock or a socket: who drives it says what happens next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from orchestrator.rounds.commands import (
    Acquire,
    Acquired,
    Alarm,
    Arrived,
    Close,
    Command,
    Event,
    Lost,
    Open,
    Report,
    Send,
    Wake,
    Woken,
)
from orchestrator.rounds.machine import Progress, RoundMachine
from orchestrator.rounds.peer import Peer
from pilotfish.errors import UnavailableError
from pilotfish.messages import CloseSequence
from pilotfish.messages import Command as Message
from pilotfish.messages import Event as Answer
from pilotfish.rpc.replica.validation import check_command
from pilotfish.types import LoadReport
from tests.support.memory_pool import MemoryPool
from tests.support.memory_replicas import MemoryLink


class PureLink(MemoryLink):
    """Its messages are on their way until somebody delivers them; its steps take place when somebody takes them."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self.on_the_way: deque[Answer] = deque()
        self.steps: deque[Callable[[], None]] = deque()
        """That are under way."""
        self.peers: dict[int, Peer] = {}

    def _answer(self, events: Sequence[Answer]) -> None:
        for event in events:
            self.on_the_way.extend(self.on_event(event))

    def _later(self, sequence_id: int, draft_token_ids: Sequence[int], parents: Sequence[int] = ()) -> None:
        self.steps.append(lambda: self._verify(sequence_id, draft_token_ids, parents))

    def _step_later(self, sequence_id: int) -> None:
        self.steps.append(lambda: self._step(sequence_id))

    def lose(self) -> None:
        self.is_connected = False
        self.tokens.clear()
        self.goal_lengths.clear()
        self.on_the_way.clear()
        self.steps.clear()


class PureRequest:
    """Carries the machine's commands to the links, and events to the machine."""

    def __init__(self, machine: RoundMachine, targets: MemoryPool[PureLink], drafts: MemoryPool[PureLink]) -> None:
        self.machine = machine
        self.links = [*targets.links, *drafts.links]
        self.now_s = 0.0
        self.alarms: dict[Alarm, float] = {}
        """The times that were asked for."""
        self.acquire: Acquire | None = None
        """A target is waited for."""
        self.token_ids: list[int] = []
        """That the client got."""
        self._targets = targets
        self._take(machine.start(self.now_s))

    @property
    def is_over(self) -> bool:
        return self.machine.sequence.is_finished

    def tell(self, event: Event) -> None:
        """It happens now."""
        self._take(self.machine.on_event(event, self.now_s))

    def deliver(self, link: PureLink, *, again: bool = False) -> None:
        """The next message of the link arrives. again: and stays on its way, to arrive once more."""
        message = link.on_the_way[0] if again else link.on_the_way.popleft()
        peer = link.peers.get(message.sequence_id)
        if peer is not None and message.sequence_id in link.mailboxes:
            self.tell(Arrived(peer, message, self.now_s, LoadReport()))

    def lose(self, link: PureLink) -> None:
        """The connection breaks; it comes back at once, without the sequences."""
        attached = [link.peers[sequence_id] for sequence_id in link.mailboxes]
        link.lose()
        for peer in attached:
            self.tell(Lost(peer, UnavailableError(f"{link.replica_id} was lost")))
        link.is_connected = True

    def wake(self, alarm: Alarm) -> None:
        """The time that was asked for comes."""
        at_s = self.alarms.pop(alarm)
        self.now_s = max(self.now_s, at_s)
        self.tell(Woken(at_s, alarm))

    def find_target(self) -> None:
        """What was waited for is there; where no replica serves, one has come back."""
        assert self.acquire is not None
        avoid, self.acquire = self.acquire.avoid, None
        link = self._targets.pick(avoid)
        if link is None:
            link = self._targets.links[0]
            link.is_draining, link.is_connected = False, True
        self.tell(Acquired(link))

    def close(self) -> None:
        self._run(self.machine.close())

    def _take(self, progress: Progress) -> None:
        self._run(progress.commands)
        for chunk in progress.chunks:
            self.token_ids.extend(chunk.token_ids)
        if self.is_over:
            self.close()

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Open():
                    link = self._link(command.peer)
                    link.peers[command.peer.sequence_id] = command.peer
                    link.mailboxes[command.peer.sequence_id] = None  # type: ignore[assignment]
                    self._send(link, command.peer, command.message)
                case Send():
                    self._send(self._link(command.peer), command.peer, command.message)
                case Close():
                    link = self._link(command.peer)
                    link.mailboxes.pop(command.peer.sequence_id, None)
                    if link.is_connected:
                        link.send(CloseSequence(command.peer.sequence_id))
                case Acquire():
                    self.acquire = command
                case Wake():
                    self.alarms[command.alarm] = command.at_s
                case Report():
                    self._report(command)

    def _send(self, link: PureLink, peer: Peer, message: Message) -> None:
        if link.is_connected and peer.sequence_id in link.mailboxes:
            check_command(message, link.model, link.limits)
            link.send(message)

    def _link(self, peer: Peer) -> PureLink:
        return next(link for link in self.links if link is peer.replica)

    def _report(self, report: Report) -> None:
        link = next(link for link in self.links if link is report.replica)
        if report.service == "failure":
            link.report_failure(report.reason)
