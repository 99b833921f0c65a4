"""Makes what drafts with the Medusa heads in a folder: beside their target, or apart from it."""

from __future__ import annotations

from pathlib import Path

import torch

from pilotfish.config import EngineConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.config.target import InTargetDrafterConfig
from pilotfish.drafters.medusa.checkpoint import load_medusa
from pilotfish.drafters.medusa.head import MedusaHead
from pilotfish.drafters.medusa.in_target import MedusaDrafter
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.models.decoder import Decoder
from pilotfish.models.device import DTYPES
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.head_config import HeadTarget


def build_in_target(
    wanted: InTargetDrafterConfig, loaded: LoadedModel, decoder: Decoder, *, top_m: int
) -> MedusaDrafter:
    """The heads that are wanted on top of the decoder that was built from loaded.

    Raises: as load_medusa does, and ModelError for another target's heads.
    """
    folder, target = head_folder(wanted.model), HeadTarget.of_model(loaded)
    head = MedusaHead(_heads(folder, target, decoder.dtype).to(decoder.device), (target.num_layers,))
    decoder.capture(head.feature_layers)
    return MedusaDrafter(decoder, head, top_m=top_m)


def build_standalone(folder: Path, target_folder: Path, engine: EngineConfig, cache_dir: Path) -> MedusaHead:  # noqa: ARG001 -- nothing is compiled
    """The heads in a folder, apart from their target, whose model folder is target_folder. engine: names a device.

    Raises: as load_medusa does, and ModelError kinds when the heads do not fit the target.
    """
    target = HeadTarget.of_folder(target_folder)
    heads = _heads(folder, target, DTYPES[engine.dtype]).to(torch.device(engine.device))
    return MedusaHead(heads, (target.num_layers,), deterministic=engine.deterministic)


def _heads(folder: Path, target: HeadTarget, dtype: torch.dtype) -> MedusaHeads:
    heads = load_medusa(folder, hidden_size=target.hidden_size, vocab_size=target.vocab_size, dtype=dtype)
    heads.config.check_target(target, source=str(folder))
    return heads
