"""A connection through a fault proxy: two sockets and a pipe each way."""

from __future__ import annotations

import asyncio
import socket
import struct

from tests.support.conditions import Conditions
from tests.support.fault_pipe import FaultPipe


class FaultConnection:
    """A client's connection and the one to the replica that it leads to."""

    def __init__(self, up: Conditions, down: Conditions, seed: int, among: set[FaultConnection]) -> None:
        """It is a member of `among` for as long as it lives."""
        self.up = FaultPipe(up, seed, self.reset)
        self.down = FaultPipe(down, seed + 1, self.reset)
        self.client = _End(self, outgoing=self.up, incoming=self.down)
        self.replica = _End(self, outgoing=self.down, incoming=self.up)
        self.is_over = False
        self._among = among
        among.add(self)

    def reset(self) -> None:
        self.is_over = True
        for end in (self.client, self.replica):
            _reset(end.transport)
        self.up.close()
        self.down.close()
        self._among.discard(self)

    def half_open(self) -> None:
        self.up.close()
        self.down.close()
        self.replica.is_deaf = self.client.is_deaf = True
        _reset(self.replica.transport)

    def end_lost(self) -> None:
        if all(end.transport is None or end.transport.is_closing() for end in (self.client, self.replica)):
            self.reset()


class _End(asyncio.Protocol):
    """One of a connection's two sockets."""

    def __init__(self, connection: FaultConnection, outgoing: FaultPipe, incoming: FaultPipe) -> None:
        """outgoing takes what the socket says, incoming says it what it hears."""
        self.transport: asyncio.Transport | None = None
        self.is_deaf = False
        """Whether what it says and its end are told to nobody."""
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._outgoing.source = self._incoming.sink = transport
        self._incoming.resume()

    def data_received(self, data: bytes) -> None:
        if not self.is_deaf:
            self._outgoing.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # the end travels as any byte does
        if not self.is_deaf:
            self._outgoing.feed(b"")
        self._connection.end_lost()

    def pause_writing(self) -> None:
        self._incoming.pause()

    def resume_writing(self) -> None:
        self._incoming.resume()


def _reset(transport: asyncio.Transport | None) -> None:
    """Close a TCP connection with a reset, as a dead process's kernel answers."""
    if transport is None or transport.is_closing():
        return
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
