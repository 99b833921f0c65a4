"""From the configuration to the drafter that lives in a target."""

from __future__ import annotations

from pilotfish.config import DraftConfig, InTargetDrafterConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.eagle3_drafter import Eagle3Drafter
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.models.decoder import Decoder
from pilotfish.models.eagle3.checkpoint import load_eagle3
from pilotfish.models.eagle3.factory import build_eagle3_head
from pilotfish.models.loading import LoadedModel
from pilotfish.speculation.lookup.lookups import LOOKUPS


def build_in_target_drafter(
    config: InTargetDrafterConfig, loaded: LoadedModel, decoder: Decoder, *, top_m: int
) -> InTargetDrafter | None:
    """The configured drafter on top of the decoder that was built from loaded; None for `none`.

    Raises: ModelNotFoundError, ModelError and UnsupportedModelError for a head that is missing, broken or another
    target's.
    """
    if config.proposer in ("auto", "none"):  # Config has made `auto` concrete
        return None
    folder, text_config = head_folder(config.model), loaded.model.config.get_text_config()
    head = load_eagle3(folder, num_target_layers=text_config.num_hidden_layers, dtype=decoder.dtype)
    head.config.check_target(
        hidden_size=text_config.hidden_size,
        vocab_size=loaded.vocab_size,
        fingerprint=loaded.fingerprint,
        source=str(folder),
    )
    decoder.capture(head.config.feature_layers)
    return Eagle3Drafter(decoder, build_eagle3_head(decoder, head), top_m=top_m)


def with_lookup(
    config: InTargetDrafterConfig, draft: DraftConfig, other: InTargetDrafter | None
) -> InTargetDrafter | None:
    """The drafter with the configured lookup before it, or the lookup alone; draft: how lookups are configured."""
    if config.lookup in ("auto", "none"):  # Config has made `auto` concrete
        return other
    name = config.lookup if other is None else other.name
    return InTargetLookup(name, LOOKUPS[config.lookup](draft), other, draft.lookup_min_accepted_tokens)
