"""A drafter before its training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pilotfish.drafter_registry import METHODS, room
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.samples import Sample
from pilotfish.training.loop import Objective
from pilotfish.training.request import TrainingRequest


@dataclass(frozen=True, slots=True)
class Trainee:
    """What is trained, and how the result is written and described."""

    objective: Objective
    save: Callable[[Path], None]
    """Writes the weights into a new folder. Raises OSError when the disk is full."""
    title: str
    """Name in the model card's first line."""
    description: str
    """Sentence `This is ...` in the model card."""
    facts: Mapping[str, str]
    """Rows of the model card's table."""


def new_trainee(request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path) -> Trainee:
    """The drafter that the request asks for, initialised from the target.

    samples: to learn from. run_folder: what is chosen from them is kept there.
    Raises: UnsupportedModelError when it cannot be made of this target.
    """
    torch.manual_seed(request.seed)
    trainee: Trainee = room(METHODS[request.method], "train").new_trainee(request, loaded, samples, run_folder)
    return trainee
