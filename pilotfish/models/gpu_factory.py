"""Makes a loaded model's decoder on a GPU, with attention by our kernels where they can do it, else by SDPA."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from pilotfish.config import AttentionKernels, EngineConfig
from pilotfish.errors import ConfigError
from pilotfish.models.attention.modules import attention_shapes
from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.attention.rows import TREE_SPAN, RowAttention
from pilotfish.models.compiled import can_compile, compile_layers
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.device import require_fp8
from pilotfish.models.file_pages import move_weights
from pilotfish.models.graphs.runner import GraphPlan, recorded_sizes
from pilotfish.models.scaled_linear import choose_products, quantise_linears, weight_format_of

logger = logging.getLogger(__name__)


def build_gpu_decoder(
    model: PreTrainedModel,
    engine: EngineConfig,
    device: torch.device,
    *,
    max_context_tokens: int,
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
    if (weight_format := weight_format_of(quantization)) is not None:
        num_linears = quantise_linears(model, weight_format, device)
        logger.info("%d linears have %s weights", num_linears, weight_format)
    move_weights(model, device)
    choose_products(model, device)
    if engine.compile and device.type == "cuda" and can_compile(device):
        compile_layers(model)
    layers, config = attention_shapes(model), model.config.get_text_config()
    # A rank has a share of either.
    group_size = config.num_attention_heads // getattr(config, "num_key_value_heads", layers[0].num_kv_heads)
    row_attention = choose_attention(engine.attention, layers, group_size, model.dtype, device)
    return TransformersDecoder(
        model,
        deterministic=False,
        max_context_tokens=max_context_tokens,
        row_attention=row_attention,
        graphs=graph_plan(engine, max_context_tokens) if row_attention is not None else None,
    )


def graph_plan(engine: EngineConfig, max_context_tokens: int) -> GraphPlan | None:
    """What an engine records; None: nothing."""
    return GraphPlan(recorded_sizes(), engine.max_sequences, max_context_tokens) if engine.cuda_graphs else None


def choose_attention(
    wanted: AttentionKernels,
    layers: Sequence[AttentionShape],
    group_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> RowAttention | None:
    """Our kernels for a model's layers on a GPU; None: SDPA, without graphs. group_size: query heads of a key head.

    Raises ConfigError where `triton` is asked for and cannot be had.
    """
    if wanted == "sdpa":
        return None
    reason = _obstacle(layers, group_size, dtype, device)
    if reason is None:
        # Triton comes with torch's builds for GPUs and only with them.
        from pilotfish.models.attention.kernels import KernelBatch

        return KernelBatch
    if wanted == "triton":
        raise ConfigError(f"engine.attention is triton, but {reason}: set it to auto or sdpa")
    logger.warning("attention on SDPA, and steps without graphs: %s", reason)
    return None


def _obstacle(
    layers: Sequence[AttentionShape], group_size: int, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Why our kernels cannot compute these layers; None when they can."""
    if device.type != "cuda":
        return f"it needs a CUDA device, not {device}"
    if any(layer.sinks is not None for layer in layers):
        return "its layers have attention sinks"
    windows = [layer.sliding_window for layer in layers if layer.sliding_window is not None]
    if min(windows, default=TREE_SPAN) < TREE_SPAN:
        return f"a layer's sliding window of {min(windows)} tokens can end within a tree"
    try:
        from pilotfish.models.attention.kernels import try_out

        for shape in dict.fromkeys(layers):
            try_out(group_size * shape.num_kv_heads, shape, dtype, device)
    except Exception as error:
        # Triton's own, of any kind: without its package or a C compiler, or on too small a GPU.
        return f"Triton cannot run its kernels here ({textwrap.shorten(str(error), 200)})"
    return None
