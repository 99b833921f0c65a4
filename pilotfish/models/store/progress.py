"""What a pull reports while it runs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class PullStage(enum.StrEnum):
    """The stages of a pull, in order; a stage whose result is already there is skipped."""

    WAIT = "waiting for another pull"
    DOWNLOAD = "download"
    CONVERT = "convert"
    MERGE = "merge the adapter"
    PUBLISH = "publish"
    DONE = "done"


@dataclass(frozen=True)
class PullProgress:
    """One report. total_bytes of 0: how far this stage is cannot be known."""

    stage: PullStage
    completed_bytes: int = 0
    total_bytes: int = 0


ProgressCallback = Callable[[PullProgress], None]


def ignore_progress(progress: PullProgress) -> None:
    """A ProgressCallback for callers who do not look."""
