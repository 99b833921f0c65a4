"""The ring of texts to learn from: a folder with one file a text, of which the oldest are deleted first.

Several engines may write, each text in a file of a name of its own, which appears as a whole.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from pilotfish.config import Config
from pilotfish.learning.private_folder import make_private
from pilotfish.learning.record import LearnedText, request_digest
from pilotfish.learning.text_file import decode_text, encode_text, read_key

_SUFFIX = ".text"
_PARTIAL = ".partial"
_SLACK = 1 / 16
"""Share of max_bytes that is freed at a time: to look at all files at each text would take longer than to write it."""
_PRUNE_EVERY_S = 10.0
"""A text may become so much older than it should where texts are written."""
_FORGOTTEN = ".forgotten"
_FORGOTTEN_AGE_S = 24 * 3600.0
"""Time for which what is written of a forgotten request is dropped: no answer or training takes longer."""
_TORN_AGE_S = 600.0
"""A file that has been written for so long belongs to a writer that is gone."""

logger = logging.getLogger(__name__)


class Ring:
    """Texts in a folder that their user alone may read. Any thread may use it."""

    def __init__(self, folder: Path, *, max_bytes: int, max_age_s: float, key: bytes | None) -> None:
        """key: 32 bytes, see text_file.read_key; None: texts are not encrypted. The first text makes the folder."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._key = key
        self._warned: set[str] = set()
        """Names of files that cannot be read, and of what cannot be written."""
        self._room = 0
        """Bytes that may be written before anything is to be deleted for them."""
        self._pruned_at = float("-inf")

    def append(self, text: LearnedText) -> None:
        """Keep a text, unless its request was to be forgotten; the oldest make room. Where it cannot be written it is
        dropped, and the log says so once."""
        if self.is_forgotten(request_digest(text.request_id)):
            return
        finished_at = text.finished_at or time.time()
        name = f"{int(finished_at * 1e6):017d}-{request_digest(text.request_id)}-{secrets.token_hex(4)}"
        partial = self._folder / f"{name}{_PARTIAL}"
        try:
            make_private(self._folder)
            try:
                partial.touch(mode=0o600, exist_ok=False)
                content = encode_text(text, self._key)
                partial.write_bytes(content)
                partial.replace(partial.with_suffix(_SUFFIX))
            finally:
                partial.unlink(missing_ok=True)
            self._warned.discard("")
            self._room -= len(content)
            if self._room < 0 or not 0 <= finished_at - self._pruned_at < _PRUNE_EVERY_S:
                self.prune(finished_at)
        except OSError as error:
            self._warn_once(
                "",
                f"no text is kept to learn from in {self._folder} ({error.strerror or error}): "
                "free some space there or name another draft.learning.folder; answers are not affected",
            )

    def paths(self) -> list[Path]:
        """The files, oldest first."""
        return sorted(self._folder.glob(f"*{_SUFFIX}"))

    def read(self, *, skip: Container[Path] = ()) -> Iterator[tuple[Path, LearnedText]]:
        """The texts but those of some files, oldest first, with their files. What cannot be read is left out, and the
        log names it once."""
        for path in self.paths():
            if path not in skip and (text := self.load(path)) is not None:
                yield path, text

    def load(self, path: Path) -> LearnedText | None:
        """The text of a file; None where it was deleted or cannot be read, see read."""
        try:
            return decode_text(path.read_bytes(), self._key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn_once(path.name, f"{path} is not learned from: {error}; delete it if it is of no use")
            return None

    def prune(self, now: float) -> None:
        """Delete what is older than max_age_s, and the oldest beyond max_bytes. now: unix time in seconds."""
        sizes: dict[Path, int] = {}
        for path in reversed(self.paths()):
            with contextlib.suppress(OSError):
                if _written_at(path) < now - self._max_age_s:
                    path.unlink(missing_ok=True)
                else:
                    sizes[path] = path.stat().st_size
        is_full = sum(sizes.values()) > self._max_bytes
        room = self._max_bytes - (int(self._max_bytes * _SLACK) if is_full else 0)
        kept = list(accumulate(sizes.values()))
        self.remove(path for path, end in zip(sizes, kept, strict=True) if end > room)
        self._room = self._max_bytes - max((end for end in kept if end <= room), default=0)
        self._pruned_at = now
        for suffix, age_s in ((_PARTIAL, _TORN_AGE_S), (_FORGOTTEN, _FORGOTTEN_AGE_S)):
            for path in self._folder.glob(f"*{suffix}"):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < now - age_s:
                        path.unlink(missing_ok=True)

    def remove(self, paths: Iterable[Path]) -> None:
        """Delete texts that have been used; those that are gone already are gone."""
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def forget(self, request_id: str) -> int:
        """Delete all texts of a request, and keep none that comes later; returns their number. Needs no key. Raises
        OSError."""
        digest = request_digest(request_id)
        try:
            make_private(self._folder)
            self._mark(digest).touch(mode=0o600)
        finally:
            files = [path for path in self.paths() if f"-{digest}-" in path.name]
            for path in files:
                path.unlink(missing_ok=True)
        return len(files)

    def is_forgotten(self, digest: str) -> bool:
        """Whether the request of this digest was to be forgotten."""
        return self._mark(digest).exists()

    def _mark(self, digest: str) -> Path:
        return self._folder / f"{digest}{_FORGOTTEN}"

    def _warn_once(self, name: str, message: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logger.warning("%s", message)


def open_ring(config: Config) -> Ring:
    """The configured ring. Raises ConfigError for a key file that cannot be read."""
    learning = config.draft.learning
    key = read_key(Path(learning.key_file).expanduser()) if learning.key_file else None
    folder = config.learning_folder / "ring"
    return Ring(folder, max_bytes=learning.max_bytes, max_age_s=learning.max_age_s, key=key)


def _written_at(path: Path) -> float:
    """Unix seconds, by the file's name; 0 for a name that is none of ours."""
    digits = path.name.partition("-")[0]
    return int(digits) / 1e6 if digits.isdecimal() else 0.0
