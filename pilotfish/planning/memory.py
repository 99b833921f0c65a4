"""How much memory the ranks of a target take, and what is left for its KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotfish.parallel.shape import ModelShape
from pilotfish.types import BLOCK_SIZE

USABLE_SHARE = 0.9
"""Share of a GPU's memory for weights and KV cache: activations, CUDA's own and the allocator's gaps take the rest."""
_BFLOAT16_BYTES = 2
_SCALE_BYTES = 4
WEIGHTS = ("bfloat16", "int8 or fp8")


class MemoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a target on so many GPUs."""

    num_ranks: int
    weights: str
    """What the layers' linears are stored in; embedding, output projection and norms stay bfloat16."""
    weight_bytes: int
    kv_bytes_per_token: int
    """Bytes of a token's keys and values, in bfloat16."""
    feature_bytes_per_token: int
    """Bytes of a token's hidden states for a head in the draft service, which rank 0 alone keeps, in bfloat16."""
    num_kv_blocks: int
    """Blocks of BLOCK_SIZE tokens that fit on rank 0 beside the weights; 0: the weights alone are too large."""
    num_kv_tokens: int
    """Tokens of all sequences together: each rank holds its heads of every token."""


class DrafterMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts for the target, in bfloat16 or as it is stored."""

    drafter: str
    weight_bytes: int
    share: float
    """Share of the target's weights in bfloat16."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `pilotfish plan --model` finds."""

    model: str
    architecture: str
    num_parameters: int
    gpu_memory_gb: float
    """10^9 bytes."""
    usable_share: float
    rows: list[MemoryRow]
    drafter: DrafterMemory | None = None


def plan_memory(
    model: str,
    shape: ModelShape,
    rank_counts: Sequence[int],
    gpu_memory_gb: float,
    *,
    drafter: str = "",
    drafter_bytes: int = 0,
    num_feature_layers: int = 0,
) -> MemoryPlan:
    """A row for each number of ranks and each kind of weights.

    drafter: its name; empty: there is none. num_feature_layers: layers whose hidden states are kept for a head in the
    draft service.
    """
    target_bytes = shape.num_parameters * _BFLOAT16_BYTES
    usable_bytes = int(gpu_memory_gb * 1e9 * USABLE_SHARE)
    return MemoryPlan(
        model=model,
        architecture=shape.architecture,
        num_parameters=shape.num_parameters,
        gpu_memory_gb=gpu_memory_gb,
        usable_share=USABLE_SHARE,
        drafter=DrafterMemory(drafter=drafter, weight_bytes=drafter_bytes, share=drafter_bytes / target_bytes)
        if drafter
        else None,
        rows=[
            _row(shape, count, weights, usable_bytes, num_feature_layers)
            for weights in WEIGHTS
            for count in rank_counts
        ],
    )


def _row(shape: ModelShape, num_ranks: int, weights: str, usable_bytes: int, num_feature_layers: int) -> MemoryRow:
    linears = shape.linears(num_ranks)
    if weights == "bfloat16":
        layer_bytes = sum(rows * columns * _BFLOAT16_BYTES for rows, columns in linears)
    else:  # one byte each, and a float32 scale for each output
        layer_bytes = sum(rows * (columns + _SCALE_BYTES) for rows, columns in linears)
    weight_bytes = shape.num_layers * layer_bytes + shape.num_other_values(num_ranks) * _BFLOAT16_BYTES
    kv_bytes = shape.num_layers * 2 * shape.num_kv_heads // num_ranks * shape.head_dim * _BFLOAT16_BYTES
    # The residual stream is whole on every rank: no other need keep it.
    feature_bytes = num_feature_layers * shape.hidden_size * _BFLOAT16_BYTES
    num_blocks = max(0, usable_bytes - weight_bytes) // ((kv_bytes + feature_bytes) * BLOCK_SIZE)
    return MemoryRow(
        num_ranks=num_ranks,
        weights=weights,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes,
        feature_bytes_per_token=feature_bytes,
        num_kv_blocks=num_blocks,
        num_kv_tokens=num_blocks * BLOCK_SIZE,
    )
