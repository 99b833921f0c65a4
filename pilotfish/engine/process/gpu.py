"""What an engine does on a GPU before its first step: how much memory for the KV cache, graphs."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, EngineConfig
from pilotfish.errors import ConfigError
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.gpu_memory import measure_kv_room
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)

MIN_BLOCKS = 3
"""Block 0, which belongs to nobody, and two for a sequence."""


def with_kv_cache_tokens(engine: EngineConfig, decoder: Decoder, extra_bytes_per_block: int = 0) -> EngineConfig:
    """The configuration with kv_cache_tokens decided; where it names a number, whether that fits beside the weights.

    Ranks all have the same blocks: as many as the one with the least room holds.
    extra_bytes_per_block: what others keep beside each of the decoder's blocks. Replaces the decoder's pool. Raises
    ConfigError when no memory is left, or less than is asked for.
    """
    if engine.kv_cache_tokens:
        if decoder.device.type == "cuda":
            _require_room(engine.kv_cache_tokens, decoder, extra_bytes_per_block)
        return engine
    if decoder.device.type != "cuda":
        return replace(engine, kv_cache_tokens=DEFAULT_KV_CACHE_TOKENS)
    if isinstance(decoder, ParallelDecoder):
        rooms = decoder.measure_kv_rooms(engine, extra_bytes_per_block)
    elif isinstance(decoder, TransformersDecoder):
        rooms = [measure_kv_room(decoder, engine, extra_bytes_per_block)]
    else:
        raise ConfigError(f"engine.kv_cache_tokens is 0, which {decoder.name} cannot measure: name a number of tokens")
    rank, room = min(enumerate(rooms), key=lambda each: each[1].num_blocks)
    where = f"rank {rank}'s GPU" if len(rooms) > 1 else str(decoder.device)
    if room.num_blocks < MIN_BLOCKS:
        raise ConfigError(
            f"no memory is left for the KV cache on {where}: {room}. Use a smaller model, engine.quantization, a "
            "smaller engine.max_batch_tokens, or more memory"
        )
    num_tokens = (room.num_blocks - 1) * BLOCK_SIZE
    logger.info("KV cache of %d tokens, decided on %s: %s", num_tokens, where, room)
    return replace(engine, kv_cache_tokens=num_tokens)


def _require_room(num_tokens: int, decoder: Decoder, extra_bytes_per_block: int) -> None:
    """Raise ConfigError, with the numbers, for a cache that is larger than what is free beside the weights. Replaces
    the decoder's pool. Of ranks it looks at the first, which alone keeps what drafters and features need."""
    num_blocks = num_tokens // BLOCK_SIZE + 1
    kv_bytes = num_blocks * (decoder.allocate(MIN_BLOCKS).num_bytes // MIN_BLOCKS)
    extra_bytes = num_blocks * extra_bytes_per_block
    torch.cuda.empty_cache()  # what loading has left would count as taken
    free_bytes, total_bytes = torch.cuda.mem_get_info(decoder.device)
    if kv_bytes + extra_bytes > free_bytes:
        raise ConfigError(
            f"engine.kv_cache_tokens is {num_tokens}, which takes {kv_bytes / 1e9:.1f} GB and "
            f"{extra_bytes / 1e9:.1f} GB for drafter and features; beside the weights {free_bytes / 1e9:.1f} of "
            f"{total_bytes / 1e9:.1f} GB are free on {decoder.device}: set it to 0, which takes what is left, or lower"
        )


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
    logger.info("recorded steps take %.1f GB on %s", taken_bytes / 1e9, decoder.device)
