"""From a head's weights to the runtime that suits its target's decoder."""

from __future__ import annotations

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.sdpa import SdpaBackend
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.eagle3.module import Eagle3Head
from pilotfish.models.eagle3.runtime import FeatureHead
from pilotfish.models.eagle3.torch_head import TorchEagle3Head
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.native.eagle3 import NativeEagle3Head


def build_eagle3_head(decoder: Decoder, module: Eagle3Head) -> FeatureHead:
    """A head on top of a decoder. Takes over the module. Raises UnsupportedModelError."""
    if isinstance(decoder, NativeDecoder):
        return NativeEagle3Head(decoder, module.to(decoder.dtype))
    if isinstance(decoder, TransformersDecoder):
        module = module.to(device=decoder.device, dtype=decoder.dtype)
        # The head must not see its first key (FIRST_KEY). FlashInfer's masks are causal or windows: it would.
        backend = decoder.backend if isinstance(decoder.backend, SdpaBackend) else SdpaBackend(deterministic=False)
        return TorchEagle3Head(module, decoder.input_embeddings, backend)
    raise UnsupportedModelError(f"EAGLE-3 heads do not run on the {decoder.name} decoder")
