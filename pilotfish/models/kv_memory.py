"""How many KV blocks a device's memory holds beside everything else: arithmetic, no device."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.errors import ConfigError
from pilotfish.types import BLOCK_SIZE

MIN_BLOCKS = 3
"""Block 0, which belongs to nobody, and two for a sequence."""


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Bytes of one device, and what they are for."""

    total_bytes: int
    free_bytes: int
    """Now, with the weights loaded; what other processes hold is not free."""
    utilization: float
    """Share of total_bytes that this process may take (vLLM's gpu_memory_utilization)."""
    held_bytes: int
    """What this process holds already: weights, and the context of the device's runtime."""
    step_bytes: int
    """The most that a step takes for itself: activations and logits, once outside of graphs and once in them."""
    graph_bytes: int
    """What recorded graphs take beside that."""

    @property
    def kv_bytes(self) -> int:
        """What is left for the KV cache; below 0 where the rest does not fit."""
        allowed = int(self.total_bytes * self.utilization) - self.held_bytes
        return min(allowed, self.free_bytes) - self.step_bytes - self.graph_bytes


def num_blocks_that_fit(budget: MemoryBudget, bytes_per_block: int, *, gathered_layers: float = 0.0) -> int:
    """KV blocks, block 0 included.

    gathered_layers: of how many layers a step copies its keys and values, as a share of all layers: with all
    sequences in one step that is as much again of every block. Raises ConfigError when not even one sequence fits.
    """
    num_blocks = int(budget.kv_bytes / (bytes_per_block * (1 + gathered_layers)))
    if num_blocks < MIN_BLOCKS:
        raise ConfigError(
            f"no memory is left for the KV cache: of {_gb(budget.total_bytes)} (engine.gpu_memory_utilization "
            f"{budget.utilization:g}; {_gb(budget.free_bytes)} free) the weights take {_gb(budget.held_bytes)} and a "
            f"step {_gb(budget.step_bytes + budget.graph_bytes)}. Use a smaller model, engine.quantization, a smaller "
            "engine.max_batch_tokens, or more memory"
        )
    return num_blocks


def tokens_of(num_blocks: int) -> int:
    """What engine.kv_cache_tokens says for so many blocks."""
    return (num_blocks - 1) * BLOCK_SIZE


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
