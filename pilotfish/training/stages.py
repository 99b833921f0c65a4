"""The stages of a training run and how they are told to whoever watches."""

from __future__ import annotations

import enum
from typing import Protocol


class Stage(enum.StrEnum):
    """In order. A stage whose result is already there is passed through."""

    SYNTHESISE = "synthesise"
    EXTRACT = "extract features"
    TRAIN = "train"
    EVALUATE = "evaluate"
    EXPORT = "export"


class Watcher(Protocol):
    """Told how far a run is."""

    def stage(self, stage: Stage, total: float, done: float = 0) -> None:
        """A stage begins with `done` of `total` units finished."""

    def progress(self, done: float, note: str = "") -> None:
        """So many units of the stage are done; note is what a number alone does not say."""
