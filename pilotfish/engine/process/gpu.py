"""What an engine does on a GPU before its first step: how much memory for the KV cache, graphs."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, EngineConfig
from pilotfish.errors import ConfigError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)

CONTEXT_BYTES = 600 << 20
"""What CUDA and its libraries take of a GPU beside what torch allocates; seen between 300 and 600 MB."""
GRAPH_BYTES = 12 << 20
"""Of one recorded size: some thousand kernels and their arguments. 15 of Llama-3.1-8B took 460 MB on an H100, their
activations and outputs included."""
MIN_BLOCKS = 3
"""Block 0, which belongs to nobody, and two for a sequence."""
GATHERED_LAYERS = 2.0
"""SDPA copies the keys and values of one layer, in powers of two of their number: at most twice."""


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
    bytes_per_block, held_bytes, step_bytes = _measured(engine, decoder)
    bytes_per_block += extra_bytes_per_block
    free_bytes, total_bytes = torch.cuda.mem_get_info(decoder.device)
    allowed_bytes = int(total_bytes * engine.gpu_memory_utilization) - held_bytes
    # Of all sequences in one step as much again of every block.
    gathered_layers = GATHERED_LAYERS / decoder.num_layers if decoder.row_attention is None else 0.0
    num_blocks = int((min(allowed_bytes, free_bytes) - step_bytes) / (bytes_per_block * (1 + gathered_layers)))
    if num_blocks < MIN_BLOCKS:
        raise ConfigError(
            f"no memory is left for the KV cache: of {_gb(total_bytes)} (engine.gpu_memory_utilization "
            f"{engine.gpu_memory_utilization:g}; {_gb(free_bytes)} free) the weights take {_gb(held_bytes)} and a step "
            f"{_gb(step_bytes)}. Use a smaller model, engine.quantization, a smaller engine.max_batch_tokens, or more "
            "memory"
        )
    num_tokens = (num_blocks - 1) * BLOCK_SIZE
    logger.info(
        "KV cache of %d tokens (%s) on %s: weights take %s, a step %s",
        num_tokens,
        _gb(num_blocks * bytes_per_block),
        decoder.device,
        _gb(held_bytes),
        _gb(step_bytes),
    )
    return replace(engine, kv_cache_tokens=num_tokens)


def record_graphs(decoder: Decoder) -> None:
    """Record the decoder's usual steps, once its pool and captured layers are what they stay."""
    if not isinstance(decoder, TransformersDecoder | ParallelDecoder) or not decoder.num_graphs:
        return
    if decoder.device.type != "cuda":
        decoder.record_graphs()
        return
    free_bytes, _ = torch.cuda.mem_get_info(decoder.device)
    decoder.record_graphs()
    taken_bytes = free_bytes - torch.cuda.mem_get_info(decoder.device)[0]
    logger.info("recorded steps take %s on %s", _gb(taken_bytes), decoder.device)


def _measured(engine: EngineConfig, decoder: TransformersDecoder) -> tuple[int, int, int]:
    """Bytes of a block; what this process holds of the device; the most that a step takes for itself, once outside of
    graphs and once in them, with what the graphs take beside it."""
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
    if num_graphs := decoder.num_graphs:
        step_bytes = 2 * step_bytes + num_graphs * GRAPH_BYTES
    return bytes_per_block, held_bytes + CONTEXT_BYTES, step_bytes


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
