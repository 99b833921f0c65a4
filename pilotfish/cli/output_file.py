"""A file that a command writes at its end: whole or not at all, and refused before any time is spent."""

from __future__ import annotations

import os
from pathlib import Path

from pilotfish.errors import ConfigError


def require_writable(path: Path) -> None:
    """Raise ConfigError if a file could not be written there."""
    folder = path.absolute().parent
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not folder.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write {path}: the folder {folder} is not writable")


def write_whole(path: Path, text: str) -> None:
    """Write the file under another name first. Raises ConfigError when that fails (a full disk)."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
