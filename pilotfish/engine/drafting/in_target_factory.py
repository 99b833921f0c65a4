"""From the configuration to the drafter that lives in a target."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from pilotfish.config import DraftConfig, InTargetDrafterConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.eagle3_drafter import Eagle3Drafter
from pilotfish.engine.drafting.early_exit_drafter import EarlyExitDrafter
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.engine.drafting.medusa_drafter import MedusaDrafter
from pilotfish.errors import ConfigError
from pilotfish.models.decoder import Decoder
from pilotfish.models.eagle3.checkpoint import load_eagle3
from pilotfish.models.eagle3.factory import build_eagle3_head
from pilotfish.models.loading import LoadedModel
from pilotfish.models.medusa import load_medusa
from pilotfish.models.store.head_config import HeadConfig
from pilotfish.speculation.lookup.lookups import LOOKUPS

DEFAULT_EXIT = 0.75
"""Share of the layers that draft where none is named: earlier ones guess too badly without training."""


def build_in_target_drafter(
    config: InTargetDrafterConfig, loaded: LoadedModel, decoder: Decoder, *, top_m: int
) -> InTargetDrafter | None:
    """The configured drafter on top of the decoder that was built from loaded; None for `none`.

    Raises: ModelNotFoundError, ModelError and UnsupportedModelError for heads that are missing, broken or another
    target's; ConfigError for an exit that the target has not.
    """
    num_layers: int = loaded.model.config.get_text_config().num_hidden_layers
    match config.proposer:
        case "auto" | "none":  # Config has made `auto` concrete
            return None
        case "eagle3":
            return _eagle3(head_folder(config.model), loaded, decoder, num_layers, top_m)
        case "early_exit":
            exit_layer = config.exit_layer or max(1, int(DEFAULT_EXIT * num_layers))
            if exit_layer >= num_layers:
                raise ConfigError(
                    f"target.drafter.exit_layer is {exit_layer}; {loaded.model_id} has {num_layers} layers, "
                    "and fewer must draft"
                )
            return EarlyExitDrafter(decoder, exit_layer, top_m=top_m)
        case "medusa":
            return _medusa(head_folder(config.model), loaded, decoder, top_m)
        case _:
            assert_never(config.proposer)


def with_lookup(
    config: InTargetDrafterConfig, draft: DraftConfig, other: InTargetDrafter | None
) -> InTargetDrafter | None:
    """The drafter with the configured lookup before it, or the lookup alone; draft: how lookups are configured."""
    if config.lookup == "none":
        return other
    return InTargetLookup(
        config.lookup if other is None else other.name,
        LOOKUPS[config.lookup](draft),
        other=other,
        min_accepted_tokens=draft.hybrid_min_accepted_tokens,
    )


def _eagle3(folder: Path, loaded: LoadedModel, decoder: Decoder, num_layers: int, top_m: int) -> Eagle3Drafter:
    module = load_eagle3(folder, num_target_layers=num_layers, dtype=decoder.dtype)
    _check_target(module.config, loaded, folder)
    decoder.capture(module.config.feature_layers)
    return Eagle3Drafter(decoder, build_eagle3_head(decoder, module), top_m=top_m)


def _medusa(folder: Path, loaded: LoadedModel, decoder: Decoder, top_m: int) -> MedusaDrafter:
    heads = load_medusa(folder, dtype=decoder.dtype)
    _check_target(heads.config, loaded, folder)
    decoder.capture(())
    return MedusaDrafter(decoder, heads, top_m=top_m)


def _check_target(config: HeadConfig, loaded: LoadedModel, folder: Path) -> None:
    hidden_size: int = loaded.model.config.get_text_config().hidden_size
    config.check_target(
        hidden_size=hidden_size, vocab_size=loaded.vocab_size, fingerprint=loaded.fingerprint, source=str(folder)
    )
