"""From a loaded model to a decoder on a GPU, its attention on FlashInfer where that can be had, else on SDPA."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from pilotfish.config import AttentionKernels, EngineConfig
from pilotfish.errors import ConfigError
from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.attention.sdpa import SdpaBackend
from pilotfish.models.decoder_transformers import TransformersDecoder, attention_shapes
from pilotfish.models.device import require_fp8
from pilotfish.models.graphs.attention import AttentionBackend
from pilotfish.models.graphs.shapes import Buckets
from pilotfish.models.scaled_linear import quantise_linears

logger = logging.getLogger(__name__)

_FLASHINFER_HEAD_SIZES = frozenset({64, 128, 256})
"""What its kernels are made for."""


def build_gpu_decoder(
    model: PreTrainedModel, engine: EngineConfig, device: torch.device, *, max_context_tokens: int
) -> TransformersDecoder:
    """Take over the model, wherever it is, and bring it to the device.

    Raises ConfigError for a quantization or attention that cannot be had there.
    """
    quantization = engine.quantization
    if quantization == "int4":
        raise ConfigError(
            "engine.quantization int4 needs the native CPU kernels: set engine.device to cpu, or quantization to int8, "
            "fp8 or none"
        )
    if quantization == "fp8":
        require_fp8(device)
    if quantization in ("int8", "fp8"):
        num_linears = quantise_linears(model, quantization, device)
        logger.info("%d linears have %s weights", num_linears, quantization)
    model = model.to(device)
    backend = choose_backend(
        engine.attention,
        attention_shapes(model),
        dtype=model.dtype,
        device=device,
        max_context_tokens=max_context_tokens,
    )
    buckets = Buckets.of_engine(
        max_sequences=engine.max_sequences,
        max_draft_tokens=engine.max_draft_tokens,
        max_context_tokens=max_context_tokens,
    )
    return TransformersDecoder(
        model,
        deterministic=False,
        max_context_tokens=max_context_tokens,
        backend=backend,
        buckets=buckets if engine.cuda_graphs else None,
    )


def choose_backend(
    wanted: AttentionKernels,
    layers: Sequence[AttentionShape],
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_context_tokens: int,
) -> AttentionBackend:
    """The backend for a model's layers on a GPU.

    Raises ConfigError where `flashinfer` is asked for and cannot be had.
    """
    reason = None if wanted == "sdpa" else flashinfer_obstacle(layers, dtype=dtype, device=device)
    if wanted == "flashinfer" and reason is not None:
        raise ConfigError(f"engine.attention is flashinfer, but {reason}: set it to auto or sdpa")
    if wanted == "sdpa" or reason is not None:
        logger.info("attention on SDPA%s", f": {reason}" if reason else "")
        return SdpaBackend(deterministic=False)
    # An optional dependency, which is imported where it is used and only there.
    from pilotfish.models.attention.flashinfer import FlashInferBackend

    return FlashInferBackend(device, max_context_tokens)


def flashinfer_obstacle(layers: Sequence[AttentionShape], *, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why FlashInfer cannot compute these layers; None when it can."""
    if device.type != "cuda":
        return f"it needs a CUDA device, not {device}"
    if importlib.util.find_spec("flashinfer") is None:
        return "the package flashinfer-python is not installed"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"it does not compute in {dtype}"
    sizes = {layer.head_dim for layer in layers} - _FLASHINFER_HEAD_SIZES
    if sizes:
        return f"it has no kernels for heads of size {min(sizes)}"
    return None
