"""A file that may change while it is in use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from pilotfish.errors import ConfigError

_log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]
"""(modification time in ns, bytes, inode): one of them changes with the content, also when a link is swapped, as
Kubernetes does with its secrets."""


ValueT = TypeVar("ValueT")


class WatchedFiles(Generic[ValueT]):
    """What some files hold, read again when they change. Any thread may ask; asking costs a stat each."""

    def __init__(self, paths: tuple[str, ...], load: Callable[[], ValueT], what: str) -> None:
        """what: names what the files hold, in the plural, for the log. Raises what `load` does, a ConfigError for files
        that cannot be used."""
        self._paths = paths
        self._load = load
        self._what = what
        self._lock = threading.Lock()
        self._stamps = self._stamped()
        self._value = load()

    @property
    def current(self) -> ValueT:
        """The latest that could be used: while files are being replaced, that from before."""
        with self._lock:
            stamps = self._stamped()
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._value = self._load()
                except ConfigError as error:
                    _log.error("%s; the %s from before stay in use", error, self._what)
                else:
                    _log.info("read the %s anew", self._what)
            return self._value

    def _stamped(self) -> tuple[Stamp | None, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: str) -> Stamp | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
