"""What rank 0 and the others say to each other: msgpack over a Unix socket, one connection for each rank. Torch-free.

1. Rank: `Hello`. Rank 0: `Setup`. Rank: `Loaded`, or `Failed` before it ends.
2. Rank 0: `Join`, once all have loaded: now they meet for their collective operations, and run what all of them can.
3. Rank 0: `Forward`, `MoveKV`, `Allocate`, `RecordGraphs`, `Measure`, each of which all ranks carry out. To the last
   they answer `Measured`.
4. A closed connection ends whoever is left.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal

import msgspec

from pilotfish.config import EngineConfig
from pilotfish.models.kv_room import KVRoom

_INT = "i"


class Hello(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A rank has started."""

    rank: int


class Setup(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What to load, and how to run it."""

    num_ranks: int
    folder: str
    """Folder of the model; it is there."""
    engine: EngineConfig
    """Engine of each rank, with nothing left to decide: no device `auto`, no 0 for threads or context."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    log_format: Literal["human", "json"]


class Abilities(msgspec.Struct, frozen=True, array_like=True):
    """What a rank can run, of what the engine's configuration asks for."""

    kernels: bool
    """Our attention kernels, which alone can be recorded."""
    compiled: bool
    """Compiled layers."""


class Loaded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The rank has its part of the model."""

    abilities: Abilities


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The rank cannot start."""

    kind: str
    """Class name of the PilotfishError."""
    message: str


class Join(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Meet the other ranks."""

    store: str
    """File to meet through."""
    abilities: Abilities
    """Abilities of all ranks: what is run."""


class Allocate(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Decoder.allocate."""

    num_blocks: int


class RecordGraphs(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """TransformersDecoder.record_graphs: the ranks wait for each other in every step that is recorded."""


class Measure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Call measure_kv_room."""


class Measured(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the rank's GPU has room for."""

    room: KVRoom


class MoveKV(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Decoder.move_kv."""

    moves: Sequence[tuple[int, int]]


class Forward(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Decoder.forward. Everything is packed: as lists of their own the numbers would take five times as long."""

    token_ids: bytes
    positions: bytes
    logit_rows: bytes
    first_rows: bytes
    """First row of each slice; the next two fields are by slice as well."""
    num_rows: bytes
    first_positions: bytes
    new_tables: list[tuple[int, int, bytes]]
    """Block tables that are not those of the same slice of the step before: the slice, how many blocks of that table
    this one begins with, and its other blocks."""
    trees: dict[int, tuple[int, ...]]
    """Parents of the nodes, by slice that has a tree."""


Order = Setup | Join | Allocate | RecordGraphs | Measure | MoveKV | Forward
"""An order of rank 0."""
Answer = Hello | Loaded | Measured | Failed
"""An answer of another rank."""

encoder = msgspec.msgpack.Encoder()
order_decoder: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
answer_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def pack(values: Sequence[int]) -> bytes:
    """Integers of at most 32 bits."""
    return array(_INT, values).tobytes()


def unpack(data: bytes) -> list[int]:
    """What was packed."""
    values = array(_INT)
    values.frombytes(data)
    return values.tolist()
