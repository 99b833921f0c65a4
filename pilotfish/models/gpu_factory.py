"""From a loaded model to a decoder on a GPU."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from pilotfish.config import AttentionKernels, Quantization
from pilotfish.errors import ConfigError
from pilotfish.models.attention.choice import choose_backend
from pilotfish.models.decoder_transformers import TransformersDecoder, attention_shapes
from pilotfish.models.device import require_fp8
from pilotfish.models.graphs.shapes import Buckets
from pilotfish.models.scaled_linear import quantise_linears

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """What of the engine's configuration matters on a GPU."""

    device: torch.device
    attention: AttentionKernels = "auto"
    graphs: bool = True
    max_sequences: int = 64
    max_draft_tokens: int = 32


def build_gpu_decoder(
    model: PreTrainedModel, options: GpuOptions, *, quantization: Quantization, max_context_tokens: int
) -> TransformersDecoder:
    """Take over the model, wherever it is, and bring it to the device.

    Raises ConfigError for a quantization or attention that cannot be had there.
    """
    if quantization == "int4":
        raise ConfigError(
            "engine.quantization int4 needs the native CPU kernels: set engine.device to cpu, or quantization to int8, "
            "fp8 or none"
        )
    if quantization == "fp8":
        require_fp8(options.device)
    if quantization in ("int8", "fp8"):
        num_linears = quantise_linears(model, quantization, options.device)
        logger.info("%d linears have %s weights", num_linears, quantization)
    model = model.to(options.device)
    backend = choose_backend(
        options.attention,
        attention_shapes(model),
        dtype=model.dtype,
        device=options.device,
        max_context_tokens=max_context_tokens,
    )
    buckets = Buckets.of_engine(
        max_sequences=options.max_sequences,
        max_draft_tokens=options.max_draft_tokens,
        max_context_tokens=max_context_tokens,
    )
    return TransformersDecoder(
        model,
        deterministic=False,
        max_context_tokens=max_context_tokens,
        backend=backend,
        buckets=buckets if options.graphs else None,
    )
