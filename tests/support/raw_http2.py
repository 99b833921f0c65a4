"""gRPC calls frame by frame (RFC 9113), for clients that no library would be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_INITIAL_WINDOW_SIZE = 4
_DEFAULT_WINDOW_BYTES = 65_535


@dataclass
class RawCall:
    """A call, the only one of its connection. Made by `begin`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    initial_window_bytes: int = _DEFAULT_WINDOW_BYTES
    granted_bytes: int = 0
    """What the server takes beyond that of the call's message."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    trailers: bytes = b""
    """As they are on the wire; gRPC's own server compresses none of them."""

    @classmethod
    async def begin(cls, address: str, path: str, headers: Mapping[str, str]) -> Self:
        host, _, port = address.rpartition(":")
        call = cls(*await asyncio.open_connection(host, int(port)))
        call.writer.write(call_head(path, headers))
        return call

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._listening.cancel()
        self.writer.close()

    def send(self, data: bytes) -> None:
        """Some of the message, 16 KiB at most."""
        self.writer.write(data_frame(data))

    async def _listen(self) -> None:
        while not self.ended.is_set():
            head = await self.reader.readexactly(9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
            payload = await self.reader.readexactly(int.from_bytes(head[:3]))
            if kind == _SETTINGS and not flags & _ACK:
                for begin in range(0, len(payload), 6):
                    if int.from_bytes(payload[begin : begin + 2]) == _INITIAL_WINDOW_SIZE:
                        self.initial_window_bytes = int.from_bytes(payload[begin + 2 : begin + 6])
                self.writer.write(_frame(_SETTINGS, b"", _ACK, stream=0))
            elif kind == _WINDOW_UPDATE and stream:
                self.granted_bytes += int.from_bytes(payload)
            elif kind == _HEADERS and flags & _END_STREAM:
                self.trailers = payload
                self.ended.set()


def call_head(path: str, headers: Mapping[str, str]) -> bytes:
    """A connection's first bytes, with those of its first call."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    fields |= {"te": "trailers", "content-type": "application/grpc", **headers}
    begin = _PREFACE + _frame(_SETTINGS, b"", stream=0)
    return begin + _frame(_HEADERS, b"".join(map(_literal, fields, fields.values())), _END_HEADERS)


def data_frame(data: bytes) -> bytes:
    """Of the first call, 16 KiB at most."""
    return _frame(_DATA, data)


def message_head(num_bytes: int) -> bytes:
    """Before each message, which is not compressed."""
    return b"\0" + num_bytes.to_bytes(4)


def _frame(kind: int, payload: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _literal(name: str, value: str) -> bytes:
    """A header field without indexing (RFC 7541, 6.2.2), both under 127 bytes."""
    return b"".join((b"\0", bytes((len(name),)), name.encode(), bytes((len(value),)), value.encode()))
