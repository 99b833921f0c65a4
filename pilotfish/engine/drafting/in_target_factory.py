"""From the configuration to the drafter that lives in a target."""

from __future__ import annotations

from pilotfish.config import DraftConfig, InTargetDrafterConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.drafter_registry import room
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.models.decoder import Decoder
from pilotfish.models.loading import LoadedModel
from pilotfish.speculation.lookup.index import lookup_of


def build_in_target_drafter(
    config: InTargetDrafterConfig, loaded: LoadedModel, decoder: Decoder, *, top_m: int
) -> InTargetDrafter | None:
    """The configured drafter on top of the decoder that was built from loaded; None for `none`.

    Raises: ModelNotFoundError, ModelError and UnsupportedModelError for a head that is missing, broken or another
    target's.
    """
    if config.proposer in ("auto", "none"):  # Config has made `auto` concrete
        return None
    drafter: InTargetDrafter = room(config.proposer, "draft").build_in_target(
        head_folder(config.model), loaded, decoder, top_m=top_m
    )
    return drafter


def with_lookup(
    config: InTargetDrafterConfig, draft: DraftConfig, other: InTargetDrafter | None
) -> InTargetDrafter | None:
    """The drafter with the configured lookup before it, or the lookup alone; draft: how lookups are configured."""
    if config.lookup in ("auto", "none"):  # Config has made `auto` concrete
        return other
    name = config.lookup if other is None else other.name
    return InTargetLookup(name, lookup_of(config.lookup)(draft), other, draft.lookup_min_accepted_tokens)
