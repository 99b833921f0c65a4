"""The model cache on disk: where things lie, how they become visible at once, what keeps pulls apart. Torch-free.

models/NAME/                 finished; appears by one rename, described by its pilotfish.json
models/.NAME.partial-*/      being written; of no use after a crash
staging/NAME/                verified intermediate files, kept so that a killed pull goes on from them
locks/NAME.lock              held by the one pull at work; the system frees it if that process dies
hub/                         huggingface_hub's own cache
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pilotfish.errors import ModelError
from pilotfish.models.store.progress import ProgressCallback, PullProgress, PullStage

MANIFEST = "pilotfish.json"

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_WRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@dataclass(frozen=True)
class ModelCache:
    """The part of the cache folder that holds models."""

    root: Path

    def folder(self, name: str) -> Path:
        """Where the finished model lies, or will lie."""
        return self.root / "models" / name

    def staging(self, name: str) -> Path:
        """Where intermediate files of a pull lie."""
        return self.root / "staging" / name

    @property
    def hub(self) -> Path:
        """The cache folder given to huggingface_hub."""
        return self.root / "hub"

    def is_complete(self, name: str) -> bool:
        """Whether every file of the manifest is there in its full size."""
        folder = self.folder(name)
        try:
            files = json.loads((folder / MANIFEST).read_bytes())["files"]
            return all((folder / file).stat().st_size == entry["size_bytes"] for file, entry in files.items())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @contextmanager
    def lock(self, name: str, progress: ProgressCallback) -> Iterator[None]:
        """Keep other pulls of this model out, in this process and in others; waits its turn."""
        path = self.root / "locks" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress(PullProgress(PullStage.WAIT))
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def partial_folder(self, name: str) -> Iterator[Path]:
        """A fresh folder beside the final one, gone afterwards unless it was published.

        Call under the lock: what earlier, killed pulls left is removed.
        """
        parent = self.folder(name).parent
        parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{name}.partial-"
        for leftover in parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        partial.chmod(0o755)  # mkdtemp's 0700 would hide a shared cache from other users
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def publish(self, name: str, partial: Path, origin: dict[str, str]) -> None:
        """Write the manifest, push everything to the disk, and make the folder visible by one rename.

        Call under the lock. `origin` is kept in the manifest.
        """
        files = {
            path.name: {"sha256": sha256_of(path), "size_bytes": path.stat().st_size}
            for path in sorted(partial.iterdir())
        }
        (partial / MANIFEST).write_text(json.dumps({**origin, "files": files}, indent=2) + "\n", encoding="utf-8")
        for path in partial.iterdir():
            path.chmod(0o644)
            _fsync(path)
        _fsync(partial)
        final = self.folder(name)
        if final.exists():  # damaged, or it would not be pulled again
            shutil.rmtree(final)
        partial.replace(final)
        _fsync(final.parent)

    def require_space(self, num_bytes: int) -> None:
        """Raises: OSError (ENOSPC) when the file system has less than num_bytes left."""
        self.root.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self.root).free < num_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root))


@contextmanager
def explain_storage_errors(root: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn an OSError of the block into a ModelError that says what to do about the cache at `root`."""
    try:
        yield
    except OSError as error:
        elsewhere = "or set PILOTFISH_CACHE (cache_dir in the configuration) to another folder"
        if error.errno in _NO_SPACE:
            need = f" (the pull needs {needed_bytes / 1e6:.0f} MB)" if needed_bytes else ""
            message = f"no space left for the model cache {root}{need}: free some, {elsewhere}; finished steps are kept"
        elif error.errno in _NOT_WRITABLE:
            message = f"the model cache {root} is not writable ({error.strerror}): make it so, {elsewhere}"
        else:
            message = f"the model cache {root} cannot be used ({error}): make it a folder, {elsewhere}"
        raise ModelError(message) from error


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
