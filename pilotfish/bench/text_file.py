"""Files of one record or one text a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pilotfish.errors import ConfigError

RecordT = TypeVar("RecordT")


def read_lines(path: Path, what: str) -> list[str]:
    """The file's lines. what: the file holds, for messages. Raises ConfigError for a file that cannot be read."""
    try:
        # Not splitlines: it also splits at characters that JSON strings may hold.
        return path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None


def read_records(path: Path, kind: type[RecordT], what: str) -> Iterator[tuple[int, RecordT]]:
    """The JSON documents of lines that are not empty, with the lines' numbers. Raises ConfigError, naming the line."""
    for number, line in enumerate(read_lines(path, what), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path} line {number}: {error}") from None
