"""What an engine learns with, by the configuration: a recorder of texts, and the versions of its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from pilotfish.config import Config
from pilotfish.config.shipped_heads import head_folder
from pilotfish.drafter_registry import room
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.learning.head_versions import Exchange, HeadVersions
from pilotfish.engine.learning.recorder import Recorder
from pilotfish.features import Features
from pilotfish.learning.ring import open_ring
from pilotfish.learning.versions import Versions
from pilotfish.models.device import enter_device
from pilotfish.models.feature_codec import encode_features
from pilotfish.models.feature_head import FeatureHead
from pilotfish.models.store.head_config import HeadTarget


class HeadDrafter(InTargetDrafter, Protocol):
    """A head in the target."""

    head: FeatureHead


def learn_with(config: Config, core: Engine, head: FeatureHead, proposer: str, target: HeadTarget) -> None:
    """Have the engine keep texts, and its head follow the version that serves. Raises ConfigError for a key file that
    cannot be read."""
    encode = partial(_encode, num_layers=len(head.feature_layers))
    recorder = Recorder(open_ring(config).append, encode, max_bytes=config.draft.learning.max_bytes)
    versions, configured = Versions(config.learning_folder), head_folder(config.learning_head)
    prepare: Callable[[FeatureHead, Path, HeadTarget], Exchange] = room(proposer, "draft").prepare_version

    def prepared(number: int) -> Exchange:
        torch.set_num_threads(1)  # of this thread: the others are the steps'
        enter_device(head.device)
        return prepare(head, versions.head_folder(number, configured), target)

    torch.get_num_threads()  # a thread that has never asked takes the number that another has set last
    core.learn(recorder, HeadVersions(versions.serving, prepared))


@torch.inference_mode()
def _encode(values: Sequence[Tensor], *, num_layers: int) -> Features:
    torch.set_num_threads(1)  # of this thread: one that shares its work with others would wait for the steps'
    return encode_features(torch.cat(list(values)), 0, num_int8_layers=num_layers)
