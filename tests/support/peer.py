"""A peer of a replica that keeps what it hears: the orchestrator's end of a stream in tests."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pilotfish.errors import PilotfishError
from pilotfish.messages import Command, Event
from pilotfish.rpc.frames import Service
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.rpc.stream import MuxStream
from pilotfish.types import LoadReport


class RecordingPeer:
    """`async with RecordingPeer(address, "target") as peer`: connected inside the block."""

    def __init__(
        self, address: str, service: Service, *, hello: Hello | None = None, security: LinkSecurity = OPEN_LINKS
    ) -> None:
        self._address = address
        self._service = service
        self._hello = hello or Hello(peer="test")
        self._security = security
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._loads: asyncio.Queue[LoadReport] = asyncio.Queue()
        self.stream: MuxStream
        self.losses: list[PilotfishError] = []
        """What on_lost was called with."""
        self.lost = asyncio.Event()
        self.batch_sizes: list[int] = []
        """Events of each frame that held some."""

    async def __aenter__(self) -> Self:
        self.stream = await MuxStream.connect(
            self._address,
            service=self._service,
            hello=self._hello,
            on_events=self._on_events,
            on_load=self._loads.put_nowait,
            on_lost=self._on_lost,
            security=self._security,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stream.close()

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.stream.send(command)

    async def event(self) -> Event:
        """The next event."""
        return await self._events.get()

    async def events(self, count: int) -> list[Event]:
        """The next `count` events."""
        return [await self.event() for _ in range(count)]

    async def ask(self, *commands: Command) -> Event:
        """Send commands; the next event."""
        self.send(*commands)
        return await self.event()

    async def load(self) -> LoadReport:
        """The next load report."""
        return await self._loads.get()

    def _on_events(self, events: Sequence[Event]) -> None:
        self.batch_sizes.append(len(events))
        for event in events:
            self._events.put_nowait(event)

    def _on_lost(self, error: PilotfishError) -> None:
        self.losses.append(error)
        self.lost.set()
