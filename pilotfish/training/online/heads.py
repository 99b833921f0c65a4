"""Heads as the trainer takes them up: from a folder, with what they need of their target, which is not loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from pilotfish.drafter_registry import room
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.samples import Sample
from pilotfish.training.trainee import Trainee

TRAINED_DEPTHS = 3
"""Draft positions that are learned, as `pilotfish train` learns them."""
JUDGED_DEPTHS = 4
"""Draft positions of a chain that lengths are counted of."""


class HeadRoom(Protocol):
    """Where heads come from."""

    hidden_size: int
    """The target's."""

    def open(self, folder: Path, num_depths: int, counts: Mapping[int, float] | None = None) -> Trainee:
        """counts: of the answers' tokens, to choose what the head can propose; None: it stays as it is.

        Raises ModelError kinds for a folder that holds no head of the target.
        """


@dataclass(frozen=True, slots=True)
class Eagle3Room(HeadRoom):
    """EAGLE-3 heads of a target."""

    target: LoadedModel
    """Embeddings and output projection; its layers may be missing."""
    hidden_size: int

    def open(self, folder: Path, num_depths: int, counts: Mapping[int, float] | None = None) -> Trainee:
        trainee: Trainee = room("eagle3", "train").learner(folder, self.target, num_depths, counts)
        return trainee


@torch.inference_mode()
def length(trainee: Trainee, sample: Sample, *, bfloat16: bool = False) -> float | None:
    """Tokens a round on a text, given the true tokens before it, the bonus included; None: it is too short.

    bfloat16: compute in it, where that is faster.
    """
    objective = trainee.objective
    objective.module.eval()
    device = next(objective.module.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
        num_rows, *counts = objective.agreement([sample.to(device)]).tolist()
    return 1 + sum(counts[objective.num_depths :]) / num_rows if num_rows else None


def num_answer_tokens(samples: Sequence[Sample]) -> int:
    """Answer tokens of all samples."""
    return sum(sample.num_answer_tokens for sample in samples)
