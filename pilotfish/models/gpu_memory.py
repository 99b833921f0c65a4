"""Measures what an engine's weights and largest step take of a GPU."""

from __future__ import annotations

import torch

from pilotfish.config import EngineConfig
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.kv_room import KVRoom
from pilotfish.types import BLOCK_SIZE

CONTEXT_BYTES = 600 << 20
"""What CUDA and its libraries take of a GPU beside what torch allocates; seen between 300 and 600 MB."""
GRAPH_BYTES = 12 << 20
"""Memory of one recorded size: some thousand kernels and their arguments. 15 of Llama-3.1-8B took 460 MB on an H100,
their activations and outputs included."""
GATHERED_LAYERS = 2.0
"""SDPA copies the keys and values of one layer, in powers of two of their number: at most twice."""


def measure_kv_room(decoder: TransformersDecoder, engine: EngineConfig, extra_bytes_per_block: int = 0) -> KVRoom:
    """Run the largest step that the engine may make. Replaces the decoder's pool.

    extra_bytes_per_block: what others keep beside each of the decoder's blocks. Of several ranks all measure at once:
    they add up the step's results.
    """
    device = decoder.device
    num_rows = min(engine.max_batch_tokens, decoder.max_context_tokens)
    num_blocks = -(-num_rows // BLOCK_SIZE) + 1
    bytes_per_block = decoder.allocate(num_blocks).num_bytes // num_blocks + extra_bytes_per_block
    torch.cuda.empty_cache()
    held_bytes = torch.cuda.memory_allocated(device)
    num_logits = min(num_rows, engine.max_logit_rows)
    step_bytes = _step_bytes(decoder, num_rows, num_logits) - held_bytes
    if decoder.graph_plan is not None:
        # Recorded steps have activations of their own, and all of their rows logits.
        num_recorded = min(num_rows, decoder.graph_plan.sizes[-1])
        step_bytes += _step_bytes(decoder, num_recorded, num_recorded) - held_bytes
        step_bytes += decoder.num_graphs * GRAPH_BYTES
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    # Of all sequences in one step as much again of every block.
    gathered_layers = GATHERED_LAYERS / decoder.num_layers if decoder.row_attention is None else 0.0
    return KVRoom(
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        allowed_bytes=int(total_bytes * engine.gpu_memory_utilization),
        held_bytes=held_bytes + CONTEXT_BYTES,
        step_bytes=step_bytes,
        bytes_per_block=int(bytes_per_block * (1 + gathered_layers)),
    )


def _step_bytes(decoder: TransformersDecoder, num_rows: int, num_logits: int) -> int:
    """The most that is allocated during a step of one sequence; num_logits: its last rows, which want logits."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(decoder.device)
    rows, blocks = range(num_rows), list(range(1, -(-num_rows // BLOCK_SIZE) + 1))
    wanted = rows[num_rows - num_logits :]
    # Logits in float32 as well: what sampling works on.
    decoder.forward(StepInput([0] * num_rows, rows, [SequenceSlice(0, num_rows, 0, blocks)], wanted)).float()
    torch.cuda.synchronize(decoder.device)
    return torch.cuda.max_memory_allocated(decoder.device)
