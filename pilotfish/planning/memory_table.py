"""A plan of memory on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from pilotfish.planning.memory import MemoryPlan, MemoryRow
from pilotfish.types import BLOCK_SIZE


def show_memory(plan: MemoryPlan, console: Console) -> None:
    """The table, and what it stands on."""
    billions = plan.num_parameters / 1e9
    console.print(f"{plan.model}: {plan.architecture}, {billions:.2f} billion parameters", style="bold", markup=False)
    console.print(
        f"GPUs of {plan.gpu_memory_gb:g} GB, of which {plan.usable_share:.0%} for weights and KV cache (bfloat16, "
        f"blocks of {BLOCK_SIZE} tokens)",
        style="dim",
        markup=False,
    )
    table = Table(box=None)
    for name in ("weights", "GPUs\n(TP)", "weights\nGB/GPU", "KV cache\nbytes/token/GPU", "KV blocks\n", "tokens\n"):
        table.add_column(name, justify="left" if name == "weights" else "right", no_wrap=True)
    for row in plan.rows:
        table.add_row(
            row.weights,
            str(row.num_ranks),
            f"{row.weight_bytes / 1e9:.2f}",
            f"{row.kv_bytes_per_token:,}",
            *_room(row),
        )
    console.print(table)


def _room(row: MemoryRow) -> tuple[str, str]:
    if not row.num_kv_blocks:
        return "does not fit", ""
    return f"{row.num_kv_blocks:,}", f"{row.num_kv_tokens:,}"
