"""What a replica's front and its engine process say to each other, as msgpack over a ZMQ PAIR socket.

1. Front: `Setup`. Engine: `Ready` or, before it exits, `Failed`.
2. Front: `list[Command]`, any number. Engine: `EngineOutput`, any number.
3. The engine ends when its standard input does: then its front is gone or wants it to stop.

The process is started as `python -m pilotfish.engine.worker --endpoint ipc://PATH --role ROLE`; the
front binds, the engine connects.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pilotfish.messages import Command, Event
from pilotfish.types import Limits, LoadReport, ModelInfo

Role = Literal["target", "draft"]
"""Which section of the configuration an engine reads."""


class Setup(msgspec.Struct, frozen=True):
    """The first message: a mapping of `config` and `role`."""

    config: str
    """YAML (pilotfish.config.config_to_yaml)."""
    role: Role


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and commands are welcome."""

    model: ModelInfo
    limits: Limits


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot start."""

    kind: str
    """Class name of the PilotfishError."""
    message: str


class EngineOutput(msgspec.Struct, frozen=True):
    """Events of one step (or none, when only the load changed)."""

    events: list[Event]
    load: LoadReport


Greeting = Ready | Failed

encoder = msgspec.msgpack.Encoder()
setup_decoder = msgspec.msgpack.Decoder(Setup)
greeting_decoder: msgspec.msgpack.Decoder[Greeting] = msgspec.msgpack.Decoder(Greeting)
commands_decoder: msgspec.msgpack.Decoder[list[Command]] = msgspec.msgpack.Decoder(list[Command])
output_decoder = msgspec.msgpack.Decoder(EngineOutput)
