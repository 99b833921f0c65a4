"""Makes the exit of a target's decoder, bare or trained."""

from __future__ import annotations

from pilotfish.config.shipped_heads import head_folder
from pilotfish.config.target import InTargetDrafterConfig
from pilotfish.drafters.early_exit.checkpoint import load_exit
from pilotfish.drafters.early_exit.config import chosen_layer
from pilotfish.drafters.early_exit.in_target import EarlyExitDrafter, Exit
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.drafters.early_exit.native_exit import NativeExit
from pilotfish.drafters.early_exit.torch_exit import TorchExit
from pilotfish.errors import ConfigError, UnsupportedModelError
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import LoadedModel
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.store.head_config import HeadTarget


def build_in_target(
    wanted: InTargetDrafterConfig, loaded: LoadedModel, decoder: Decoder, *, top_m: int
) -> EarlyExitDrafter:
    """The exit that is wanted, from the decoder that was built from loaded.

    Raises: as load_exit does; ConfigError for a layer that the target or the trained exit lacks.
    """
    if not wanted.model:
        num_layers = HeadTarget.of_model(loaded).num_layers
        exit_layer = chosen_layer(wanted.exit_layer, num_layers, "target.drafter.exit_layer")
        return EarlyExitDrafter(decoder, build_exit(decoder, exit_layer, None), top_m=top_m)
    head = load_exit(head_folder(wanted.model), loaded, dtype=decoder.dtype)
    exit_layer = head.config.exit_layer
    if wanted.exit_layer not in (0, exit_layer):
        raise ConfigError(
            f"target.drafter.exit_layer is {wanted.exit_layer}, and the exit in {wanted.model} was trained to leave "
            f"after {exit_layer} layers: leave exit_layer out"
        )
    decoder.capture((exit_layer,))
    return EarlyExitDrafter(decoder, build_exit(decoder, exit_layer, head), top_m=top_m)


def build_exit(decoder: Decoder, num_layers: int, head: ExitHead | None) -> Exit:
    """An exit after num_layers of a decoder. Takes over the head. Raises UnsupportedModelError."""
    if isinstance(decoder, NativeDecoder):
        return NativeExit(decoder, num_layers, head)
    if isinstance(decoder, TransformersDecoder):
        return TorchExit(decoder, num_layers, None if head is None else head.to(decoder.device))
    raise UnsupportedModelError(f"early exits do not run on the {decoder.name} decoder")
