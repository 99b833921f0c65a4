"""What ranks take, against figures worked out by hand."""

from __future__ import annotations

from pilotfish.parallel.inventory import Inventory, Layer, Parameter
from pilotfish.parallel.sizes import Cut
from pilotfish.planning.memory import MemoryPlan, plan_memory

TINY = Inventory(
    architecture="TinyForCausalLM",
    parameters=[
        Parameter("embedding", (10, 8), Cut.VOCABULARY),
        Parameter("up", (16, 8), Cut.ROWS),
        Parameter("up_bias", (16,), Cut.ROWS),
        Parameter("down", (8, 16), Cut.COLUMNS),
        Parameter("norm", (8,), Cut.WHOLE),
    ],
    layers=[Layer(num_kv_heads=4, head_dim=4)] * 3,
)


def plan(gpu_memory_gb: float) -> MemoryPlan:
    return plan_memory("tiny", TINY, [1, 4], gpu_memory_gb)


def test_bytes_of_a_rank() -> None:
    whole, quarter, whole_int8, quarter_int8 = plan(1).rows
    assert TINY.num_parameters == 80 + 128 + 16 + 128 + 8
    assert whole.weight_bytes == 2 * 360
    # The vocabulary's 10 rows go into parts of 3.
    assert quarter.weight_bytes == 2 * (24 + 32 + 4 + 32 + 8)
    # One byte for each of the 256 weights of linears, four for each of their 24 outputs; two for the rest.
    assert whole_int8.weight_bytes == 256 + 4 * 24 + 2 * 104
    assert quarter_int8.weight_bytes == 64 + 4 * (4 + 8) + 2 * 36
    assert (whole.kv_bytes_per_token, quarter.kv_bytes_per_token) == (3 * 2 * 16 * 2, 3 * 2 * 4 * 2)
