"""What an engine does on a GPU before its first step: which device, how much memory for the KV cache, graphs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, EngineConfig
from pilotfish.errors import ConfigError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.device import device_memory, enter_device, resolve_device
from pilotfish.models.gpu_factory import GpuOptions
from pilotfish.models.kv_memory import MemoryBudget, num_blocks_that_fit, tokens_of
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)

CONTEXT_BYTES = 600 << 20
"""What CUDA and its libraries take of a GPU beside what torch allocates; seen between 300 and 600 MB."""
GRAPH_BYTES = 3 << 20
"""Of one recorded shape: some thousand kernels and their arguments. An allowance, as the context's is."""
GATHERED_LAYERS = 2.0
"""SDPA copies the keys and values of one layer, in powers of two of their number: at most twice."""


def gpu_options(engine: EngineConfig) -> GpuOptions | None:
    """The device to compute on and what is wanted there; None for the CPU. Makes it the current device.

    Raises ConfigError for a device that is not there.
    """
    device = resolve_device(engine.device)
    if device.type != "cuda":
        return None
    enter_device(device)
    return GpuOptions(
        device=device,
        attention=engine.attention,
        graphs=engine.cuda_graphs,
        max_sequences=engine.max_sequences,
        max_draft_tokens=engine.max_draft_tokens,
    )


def loading_device(engine: EngineConfig, gpu: GpuOptions | None) -> torch.device:
    """Where the weights are loaded to: the CPU where they are to be rounded, so that the GPU never holds them whole."""
    if gpu is None or engine.quantization in ("int8", "fp8"):
        return torch.device("cpu")
    return gpu.device


def with_kv_cache_tokens(engine: EngineConfig, decoder: Decoder, extra_bytes_per_block: int = 0) -> EngineConfig:
    """The configuration with kv_cache_tokens decided; unchanged where it names a number.

    extra_bytes_per_block: what others keep beside each of the decoder's blocks. Replaces the decoder's pool. Raises
    ConfigError when no memory is left.
    """
    if engine.kv_cache_tokens:
        return engine
    if decoder.device.type != "cuda":
        return replace(engine, kv_cache_tokens=DEFAULT_KV_CACHE_TOKENS)
    if not isinstance(decoder, TransformersDecoder):
        raise ConfigError(f"engine.kv_cache_tokens is 0, which {decoder.name} cannot measure: name a number of tokens")
    budget, decoder_bytes = _measured(engine, decoder)
    bytes_per_block = decoder_bytes + extra_bytes_per_block
    gathered_layers = GATHERED_LAYERS / decoder.num_layers if decoder.backend.gathers(()) else 0.0
    num_blocks = num_blocks_that_fit(budget, bytes_per_block, gathered_layers=gathered_layers)
    logger.info(
        "KV cache of %d tokens (%.1f GB) on %s: weights take %.1f GB, a step %.1f GB",
        tokens_of(num_blocks),
        num_blocks * bytes_per_block / 1e9,
        decoder.device,
        budget.held_bytes / 1e9,
        (budget.step_bytes + budget.graph_bytes) / 1e9,
    )
    return replace(engine, kv_cache_tokens=tokens_of(num_blocks))


def record_graphs(decoder: Decoder, exit_layers: Sequence[int | None] = (None,)) -> None:
    """Record the decoder's usual steps, once its pool and captured layers are what they stay."""
    if not isinstance(decoder, TransformersDecoder) or not decoder.num_graphs:
        return
    if decoder.device.type != "cuda":
        decoder.record_graphs(exit_layers)
        return
    free_bytes = device_memory(decoder.device).free_bytes
    decoder.record_graphs(exit_layers)
    taken_gb = (free_bytes - device_memory(decoder.device).free_bytes) / 1e9
    logger.info("recorded steps take %.2f GB on %s", taken_gb, decoder.device)


def _measured(engine: EngineConfig, decoder: TransformersDecoder) -> tuple[MemoryBudget, int]:
    """What the device holds and the largest step takes; bytes of a block."""
    num_rows = min(engine.max_batch_tokens, decoder.max_context_tokens)
    num_blocks = -(-num_rows // BLOCK_SIZE) + 1
    bytes_per_block = decoder.allocate(num_blocks).num_bytes // num_blocks
    device = decoder.device
    torch.cuda.empty_cache()
    held_bytes = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    blocks = list(range(1, num_blocks))
    rows = range(num_rows)
    # Every row's logits, also in float32: the most that verifications ask for.
    logits = decoder.forward(StepInput([0] * num_rows, rows, [SequenceSlice(0, num_rows, 0, blocks)], rows)).float()
    torch.cuda.synchronize(device)
    step_bytes = torch.cuda.max_memory_allocated(device) - held_bytes
    del logits
    torch.cuda.empty_cache()
    memory = device_memory(device)
    num_graphs = decoder.num_graphs
    budget = MemoryBudget(
        total_bytes=memory.total_bytes,
        free_bytes=memory.free_bytes,
        utilization=engine.gpu_memory_utilization,
        held_bytes=held_bytes + CONTEXT_BYTES,
        step_bytes=step_bytes * (2 if num_graphs else 1),
        graph_bytes=num_graphs * GRAPH_BYTES + decoder.graph_attention_bytes,
    )
    return budget, bytes_per_block
