"""Recorded arrivals: a jsonl with the keys of the Mooncake traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from pilotfish.errors import ConfigError


class TraceEntry(msgspec.Struct, frozen=True):
    """A recorded request; other fields of the line are ignored."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    """Milliseconds since some start."""
    input_length: Annotated[int, msgspec.Meta(ge=1)]
    """Prompt tokens."""
    output_length: Annotated[int, msgspec.Meta(ge=1)]
    """Output tokens."""


def load_trace(path: Path) -> list[TraceEntry]:
    """The entries in the order of their time. Raises ConfigError, naming the line, for what cannot be used."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ConfigError(f"cannot read the trace {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entries.append(msgspec.json.decode(line, type=TraceEntry))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} line {number}: {error}") from None
    if not entries:
        raise ConfigError(f"{path} holds no requests")
    return sorted(entries, key=lambda entry: entry.timestamp)
