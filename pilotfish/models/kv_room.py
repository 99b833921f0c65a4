"""How many blocks of the KV cache one GPU has room for, and why no more. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KVRoom:
    """Memory of one GPU, in bytes, as an engine finds it before its cache is allocated."""

    total_bytes: int
    free_bytes: int
    allowed_bytes: int
    """The part of the total that engine.gpu_memory_utilization allows."""
    held_bytes: int
    """Memory held by the weights, and by CUDA beside what torch allocates."""
    step_bytes: int
    """The most that a step takes for itself, with what recorded steps take."""
    bytes_per_block: int
    """What drafters and features keep with a block included, and what a step copies of it."""

    @property
    def num_blocks(self) -> int:
        left_bytes = min(self.allowed_bytes - self.held_bytes, self.free_bytes) - self.step_bytes
        return max(0, left_bytes // self.bytes_per_block)

    def __str__(self) -> str:
        return (
            f"of {_gb(self.total_bytes)} this engine may take {_gb(self.allowed_bytes)} "
            f"(engine.gpu_memory_utilization), {_gb(self.free_bytes)} are free, the weights take "
            f"{_gb(self.held_bytes)}, a step {_gb(self.step_bytes)}"
        )


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
