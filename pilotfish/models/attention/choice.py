"""Which attention backend computes: FlashInfer where it is installed and has kernels for the model, else SDPA."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence

import torch

from pilotfish.config import AttentionKernels
from pilotfish.errors import ConfigError
from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.attention.sdpa import SdpaBackend
from pilotfish.models.graphs.attention import RecordableBackend

_HEAD_SIZES = frozenset({64, 128, 256})
"""Head sizes that FlashInfer's kernels are made for."""

logger = logging.getLogger(__name__)


def choose_backend(
    wanted: AttentionKernels,
    layers: Sequence[AttentionShape],
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_context_tokens: int,
) -> RecordableBackend:
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
    sizes = {layer.head_dim for layer in layers} - _HEAD_SIZES
    if sizes:
        return f"it has no kernels for heads of size {min(sizes)}"
    return None
