"""What targets of a pool must agree on, beside the model, to give the same answers."""

from __future__ import annotations

from pilotfish.config import EngineConfig
from pilotfish.models.decoder import Decoder
from pilotfish.models.native.decoder import NativeDecoder


def precision_of(engine: EngineConfig, decoder: Decoder) -> str:
    """How an engine rounds and sums, as replicas state it (ModelInfo.dtype). Lossless weights give the answers of the
    plain ones; AMX tiles, which multiply what is not rounded to eight bits, sum in an order of their own."""
    if engine.quantization in ("int8", "int4", "fp8"):
        in_blocks = "" if decoder.device.type == "cuda" else " in blocks"
        return f"{engine.dtype}, {engine.quantization} weights and activations{in_blocks}"
    if isinstance(decoder, NativeDecoder) and decoder.uses_tiles:
        return f"{engine.dtype}, engine.kernels: amx"
    return engine.dtype
