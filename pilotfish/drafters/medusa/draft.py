"""Makes what drafts with the Medusa heads in a folder: beside their target, or apart from it."""

from __future__ import annotations

from pathlib import Path

import torch

from pilotfish.config import EngineConfig
from pilotfish.drafters.medusa.checkpoint import load_medusa
from pilotfish.drafters.medusa.head import MedusaHead
from pilotfish.drafters.medusa.in_target import MedusaDrafter
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.decoder import Decoder
from pilotfish.models.device import DTYPES
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.folder import read_metadata
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint


def build_in_target(folder: Path, loaded: LoadedModel, decoder: Decoder, *, top_m: int) -> MedusaDrafter:
    """The heads in a folder on top of the decoder that was built from loaded.

    Raises: as load_medusa does, and ModelError for another target's heads.
    """
    config = loaded.model.config.get_text_config()
    sizes = {"hidden_size": int(config.hidden_size), "vocab_size": loaded.vocab_size}
    heads = load_medusa(folder, **sizes, dtype=decoder.dtype)
    heads.config.check_target(**sizes, fingerprint=loaded.fingerprint, source=str(folder))
    head = MedusaHead(heads.to(decoder.device), (int(config.num_hidden_layers),))
    decoder.capture(head.feature_layers)
    return MedusaDrafter(decoder, head, top_m=top_m)


def build_standalone(folder: Path, target_folder: Path, engine: EngineConfig, cache_dir: Path) -> MedusaHead:  # noqa: ARG001 -- nothing is compiled
    """The heads in a folder, apart from their target, whose model folder is target_folder. engine: names a device.

    Raises: as load_medusa does, and ModelError kinds when the heads do not fit the target.
    """
    target = read_metadata(target_folder)
    config = {**target.config, **(target.config.get("text_config") or {})}
    hidden_size, num_layers = config.get("hidden_size"), config.get("num_hidden_layers")
    if not isinstance(hidden_size, int) or not isinstance(num_layers, int):
        raise UnsupportedModelError(f"{target_folder / 'config.json'} lacks num_hidden_layers or hidden_size")
    heads = load_medusa(folder, hidden_size=hidden_size, vocab_size=target.vocab_size, dtype=DTYPES[engine.dtype])
    heads.config.check_target(
        hidden_size=hidden_size,
        vocab_size=target.vocab_size,
        fingerprint=tokenizer_fingerprint(target_folder),
        source=str(folder),
    )
    return MedusaHead(heads.to(torch.device(engine.device)), (num_layers,), deterministic=engine.deterministic)
