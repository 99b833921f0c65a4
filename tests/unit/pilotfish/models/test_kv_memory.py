"""How many blocks fit: vLLM's rule, and what is said when nothing fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.errors import ConfigError
from pilotfish.models.kv_memory import MemoryBudget, num_blocks_that_fit, tokens_of

GB = 10**9
BUDGET = MemoryBudget(
    total_bytes=80 * GB,
    free_bytes=60 * GB,
    utilization=0.9,
    held_bytes=17 * GB,
    step_bytes=2 * GB,
    graph_bytes=1 * GB,
)


def test_what_is_allowed_less_what_is_taken() -> None:
    assert BUDGET.kv_bytes == (72 - 17 - 3) * GB
    assert num_blocks_that_fit(BUDGET, 2 << 20) == 52 * GB // (2 << 20)
    assert tokens_of(1001) == 16000


def test_what_other_processes_hold_is_not_ours() -> None:
    assert replace(BUDGET, free_bytes=10 * GB).kv_bytes == 7 * GB


def test_gathered_keys_take_their_share() -> None:
    assert num_blocks_that_fit(BUDGET, 1 << 20, gathered_layers=2 / 8) == int(52 * GB / (1.25 * (1 << 20)))


def test_where_no_sequence_fits_the_message_says_what_takes_the_memory() -> None:
    with pytest.raises(ConfigError, match=r"of 80\.0 GB .* weights take 70\.0 GB .* step 3\.0 GB.*quantization"):
        num_blocks_that_fit(replace(BUDGET, held_bytes=70 * GB), 1 << 20)
