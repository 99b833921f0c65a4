"""A file that may change while it is in use."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int]
"""(modification time in ns, bytes, inode): one of them changes with the content, also when a link is swapped, as
Kubernetes does with its secrets."""


class WatchedFiles:
    """Some files, and whether they have changed since they were last looked at. Costs a stat each."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths
        self._stamps: tuple[Stamp | None, ...] | None = None

    def changed(self) -> bool:
        """Whether a file is another than at the last call; the first call says yes."""
        stamps = tuple(_stamp(path) for path in self._paths)
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        return True


def _stamp(path: str) -> Stamp | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
