"""What a replica's front and its engine process say to each other: msgpack over a Unix socket pair.

1. Front: `Setup`. Engine: `Ready` or, before it exits, `Failed`.
2. Front: `EngineInput`, any number. Engine: `EngineOutput`, any number.
3. The engine ends with its front (pilotfish.child), or when that wants it to.

The process is started as `pilotfish.engine.process.worker --socket DESCRIPTOR --role ROLE`, with its end of the pair
inherited. Each message follows its length in bytes (4 bytes, little-endian). A plain socket, as ZMQ's threads at each
end take twice the CPU time from the decode step (124 us instead of 62 to send 180 bytes, measured once on two cores).
"""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import Literal

import msgspec

from pilotfish.messages import EngineCommand, Event
from pilotfish.types import Limits, LoadReport, ModelInfo

Role = Literal["target", "draft"]
"""Which section of the configuration an engine reads."""


class Setup(msgspec.Struct, frozen=True):
    """The first message."""

    config: str
    """YAML (pilotfish.config.config_to_yaml)."""
    rank_folder: str = ""
    """Folder where the other ranks of a tensor-parallel target meet this engine; empty: it starts them itself."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and commands are welcome."""

    model: ModelInfo
    limits: Limits
    silence_timeout_s: float = 0.0
    """The engine says something every LOAD_INTERVAL_S between steps. Silent for longer than this it hangs; 0: it may
    be silent for ever."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot start."""

    kind: str
    """Class name of the PilotfishError."""
    message: str


class EngineInput(msgspec.Struct, frozen=True, array_like=True):
    """What has arrived at the front."""

    commands: list[EngineCommand]
    arrived_ns: int
    """Time of arrival on the machine's monotonic clock: the engine may see it a step later."""


class EngineOutput(msgspec.Struct, frozen=True):
    """Events of one step (or none, when only the load changed)."""

    events: list[Event]
    load: LoadReport


Greeting = Ready | Failed

encoder = msgspec.msgpack.Encoder()
setup_decoder = msgspec.msgpack.Decoder(Setup)
greeting_decoder: msgspec.msgpack.Decoder[Greeting] = msgspec.msgpack.Decoder(Greeting)
input_decoder = msgspec.msgpack.Decoder(EngineInput)
output_decoder = msgspec.msgpack.Decoder(EngineOutput)

_LENGTH = struct.Struct("<I")


def framed(message: bytes) -> bytes:
    """The message as it travels."""
    return _LENGTH.pack(len(message)) + message


class MessageReader:
    """Cuts what arrives back into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes."""
        self._bytes += data
        messages = []
        start = 0
        while len(self._bytes) >= start + _LENGTH.size:
            begin = start + _LENGTH.size
            end = begin + _LENGTH.unpack_from(self._bytes, start)[0]
            if len(self._bytes) < end:
                break
            messages.append(bytes(self._bytes[begin:end]))
            start = end
        del self._bytes[:start]
        return messages


_MAX_READ_BYTES = 1 << 18


class WorkerSocket:
    """Whole messages over an inherited descriptor. Blocking: the engine has nothing else to do.

    `send` and `receive` raise SystemExit when the front is gone, since nobody is left to work for.
    """

    def __init__(self, descriptor: int) -> None:
        # The front may have had a thousand descriptors when it made this one; select() knows no larger ones.
        self._socket = socket.socket(fileno=os.dup(descriptor))
        os.close(descriptor)
        self._reader = MessageReader()

    def send(self, message: bytes) -> None:
        """Waits while the front does not read."""
        try:
            self._socket.sendall(framed(message))
        except OSError:
            raise SystemExit(0) from None

    def receive(self, timeout_s: float | None = None) -> list[bytes]:
        """Every message that is there, after waiting timeout_s for a first (None: as long as it takes)."""
        messages: list[bytes] = []
        # poll() and epoll know whole milliseconds, of which eight are a step.
        while select.select((self._socket,), (), (), 0 if messages else timeout_s)[0]:
            messages += self._reader.feed(self._read())
        return messages

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_MAX_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            raise SystemExit(0)
        return data
