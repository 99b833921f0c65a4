"""The versions of a drafter's weights in a folder, and which of them serves.

versions/N/      the head's folder, as `pilotfish train` writes it, and version.json
versions/N.json  what is left of one that was deleted and that others were trained on from
serving.json     what serves, what served before it, and the history; replaced as a whole

Version 0 is the configured head, which lies elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from pilotfish.errors import InvalidRequestError, ModelError, UnavailableError
from pilotfish.learning.facts import Change, VersionFacts
from pilotfish.learning.private_folder import make_private

TRAINER_LOCK = "trainer.lock"
"""File in the folder that a trainer holds as long as it works there."""
_WEIGHTS = "model.safetensors"
_FACTS = "version.json"
_MAX_HISTORY = 1000
_LOCK_TIMEOUT_S = 30.0

logger = logging.getLogger(__name__)


class _Serving(msgspec.Struct, frozen=True):
    """serving.json."""

    served: tuple[int, ...] = (0,)
    """What serves, last, and what served before, without what was rolled back."""
    history: tuple[Change, ...] = ()


class _Version(msgspec.Struct, frozen=True):
    """version.json."""

    facts: VersionFacts
    sha256: str
    """Digest of the weights."""


class Versions:
    """Versions in one folder. Any thread and process may use it; writers take turns."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        """The folder is made by the first version. clock: unix time in seconds."""
        self._path = folder / "serving.json"
        self._versions = folder / "versions"
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._known = _Serving()

    def serving(self) -> int:
        """The version that serves; 0 before the first promotion. A stat, where nothing has changed.

        Where serving.json cannot be read, the version from before goes on, and the log says so once.
        """
        with self._lock:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._known = self._read()
                except ModelError as error:
                    logger.warning("%s; version %d goes on serving", error, self._known.served[-1])
            return self._known.served[-1]

    def served_before(self) -> int | None:
        """The version that a roll-back returns to; None: the configured head serves. Raises ModelError."""
        return next(reversed(self._served_before(self._read())), None)

    def history(self) -> list[Change]:
        """Promotions and roll-backs, oldest first. Raises ModelError for a serving.json that cannot be read."""
        return list(self._read().history)

    def numbers(self) -> list[int]:
        """The versions that are kept, ascending, without 0."""
        return sorted(int(path.name) for path in self._versions.glob("*") if path.name.isdecimal())

    def facts(self, number: int) -> VersionFacts:
        """Raises ModelError where version.json cannot be read; InvalidRequestError where there is no such version."""
        return self._version(number).facts

    def head_folder(self, number: int, configured: Path) -> Path:
        """The folder of a version's head; `configured` for 0.

        Raises: InvalidRequestError where there is none; ModelError where its files are not as they were written.
        """
        if number == 0:
            return configured
        version, folder = self._version(number), self._folder(number)
        try:
            is_whole = _sha256(folder / _WEIGHTS) == version.sha256
        except OSError as error:
            raise _damaged(folder, error.strerror or str(error)) from error
        if not is_whole:
            raise _damaged(folder, f"{_WEIGHTS} is not as it was written")
        return folder

    def add(self, head: Path, facts: VersionFacts) -> int:
        """Move a finished head's folder among the versions; returns its number. It does not serve yet.

        head: on the same disk. Raises OSError when the disk is full; nothing is added then.
        """
        version = _Version(facts, _sha256(head / _WEIGHTS))
        with self._locked():
            number = 1 + max([0, *self.numbers(), *(change.to_version for change in self._read().history)])
            (head / _FACTS).write_bytes(_json(version))
            for path in head.iterdir():
                _flush(path)
            make_private(self._versions)
            head.replace(self._folder(number))
        return number

    def promote(self, number: int, reason: str, *, by_hand: bool = False) -> None:
        """Let a version serve. Raises as head_folder does, and OSError; UnavailableError where others keep writing."""
        with self._locked():
            self.head_folder(number, self._versions)
            serving = self._read()
            if number != serving.served[-1]:
                self._write(serving, (*serving.served, number), reason, by_hand)

    def roll_back(self, reason: str, *, by_hand: bool = False) -> int:
        """Let the version serve that served before; returns it. Versions that are gone are passed over.

        Raises: InvalidRequestError where the configured head serves; as promote does.
        """
        with self._locked():
            serving = self._read()
            before = self._served_before(serving)
            if not before:
                raise InvalidRequestError("nothing was promoted: the configured head serves")
            self._write(serving, before, reason, by_hand)
            return before[-1]

    def keep(self, count: int) -> None:
        """Delete all but the newest `count` versions, those of the last `count` that served, and what serves."""
        with self._locked():
            numbers, served = self.numbers(), self._read().served
            kept = {*numbers[-count:], *served[-max(2, count) :]}
            ancestors = {each for number in kept for each in self.lineage(number)}
            for number in set(numbers) - kept:
                if number in ancestors:
                    with contextlib.suppress(OSError):
                        (self._folder(number) / _FACTS).replace(self._note(number))
                shutil.rmtree(self._folder(number), ignore_errors=True)
            for path in self._versions.glob("*.json"):
                if path not in map(self._note, ancestors):
                    path.unlink(missing_ok=True)

    def lineage(self, number: int) -> dict[int, VersionFacts]:
        """The version and those that it was trained on from, as far back as anything is left of them; 0 is none."""
        found: dict[int, VersionFacts] = {}
        while number and number not in found:
            path = self._folder(number) / _FACTS
            try:
                facts = _decoded(path if path.exists() else self._note(number)).facts
            except (OSError, msgspec.DecodeError):
                break
            found[number] = facts
            number = facts.parent
        return found

    def _served_before(self, serving: _Serving) -> tuple[int, ...]:
        """The versions that are still there."""
        kept = {0, *self.numbers()}
        return tuple(number for number in serving.served[:-1] if number in kept)

    def _folder(self, number: int) -> Path:
        return self._versions / str(number)

    def _note(self, number: int) -> Path:
        return self._versions / f"{number}.json"

    def _version(self, number: int) -> _Version:
        folder = self._folder(number)
        if not folder.is_dir():
            raise InvalidRequestError(
                f"there is no version {number}: `pilotfish drafter list` shows those that are kept"
            )
        try:
            return _decoded(folder / _FACTS)
        except (OSError, msgspec.DecodeError) as error:
            raise _damaged(folder, f"{_FACTS}: {error}") from error

    def _read(self) -> _Serving:
        try:
            serving = msgspec.json.decode(self._path.read_bytes(), type=_Serving)
        except FileNotFoundError:
            return _Serving()
        except (OSError, msgspec.DecodeError) as error:
            raise ModelError(
                f"{self._path} cannot be read ({error}): delete it, and the configured head serves; "
                "then promote the version that you want"
            ) from error
        return serving if serving.served else _Serving(history=serving.history)

    def _write(self, old: _Serving, served: tuple[int, ...], reason: str, by_hand: bool) -> None:
        change = Change(self._clock(), old.served[-1], served[-1], reason, by_hand)
        new = _Serving(served, (*old.history, change)[-_MAX_HISTORY:])
        partial = self._path.with_name(f".{self._path.name}.partial")
        try:
            partial.write_bytes(_json(new))
            _flush(partial)
            partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self._path.with_name("lock"), timeout=_LOCK_TIMEOUT_S):
                yield
        except Timeout:
            raise UnavailableError(
                f"another process has held {self._path.with_name('lock')} for {_LOCK_TIMEOUT_S:g} s: try again"
            ) from None


def _damaged(folder: Path, reason: str) -> ModelError:
    return ModelError(
        f"{folder} is damaged ({reason}): `pilotfish drafter rollback` if it serves, then delete the folder"
    )


def _decoded(path: Path) -> _Version:
    """Raises OSError and DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=_Version)


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Write the file through to the disk, before a name makes it count."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
