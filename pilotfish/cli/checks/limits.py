"""What a container leaves of its machine: cores, shared memory, and somewhere to write."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.config import Config
from pilotfish.engine.process.cores import usable_cores

SHARED_MEMORY = Path("/dev/shm")
NEEDED_SHARED_BYTES = 512 * 2**20
"""Ranks of a target share buffers there; container engines give 64 MiB unless another size is set."""


def check_limits(config: Config, shared_memory: Path = SHARED_MEMORY) -> Iterator[CheckFinding]:
    """Cores, the temporary folder and, for a target in several ranks, shared memory."""
    yield check_cores(usable_cores(), os.cpu_count() or 1)
    yield _temporary_folder()
    if config.target.tensor_parallel_size > 1 and shared_memory.is_dir():
        yield _shared_memory(shared_memory)


def check_cores(usable: int, visible: int) -> CheckFinding:
    """Whether there are enough for an engine and its front."""
    found = f"{usable} of {visible} may be used" if usable < visible else f"{visible}"
    if usable == 1:
        advice = "the engine and the service's front share it; allow the container two or more"
        return CheckFinding("cores", Severity.WARNING, found, advice)
    return CheckFinding("cores", Severity.OK, found)


def _temporary_folder() -> CheckFinding:
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"\0")
    except OSError as error:
        advice = "mount a writable file system at /tmp (docker run --tmpfs /tmp), or set TMPDIR"
        return CheckFinding("temporary folder", Severity.PROBLEM, f"cannot be written: {error.strerror}", advice)
    return CheckFinding("temporary folder", Severity.OK, tempfile.gettempdir())


def _shared_memory(folder: Path) -> CheckFinding:
    total = shutil.disk_usage(folder).total
    found = f"{folder}, {total / 2**20:.0f} MiB"
    if total < NEEDED_SHARED_BYTES:
        advice = "give the container more: docker run --shm-size 1g, or a memory-backed emptyDir at /dev/shm"
        return CheckFinding("shared memory", Severity.PROBLEM, found, advice)
    return CheckFinding("shared memory", Severity.OK, found)
