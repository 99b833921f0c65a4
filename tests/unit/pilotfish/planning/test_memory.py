"""What ranks take, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.parallel.shape import ModelShape
from pilotfish.planning.memory import MemoryPlan, plan_memory

TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["TinyForCausalLM"],
    "num_hidden_layers": 3,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 4,
    "intermediate_size": 16,
    "vocab_size": 10,
    "tie_word_embeddings": True,
}


def plan(gpu_memory_gb: float) -> MemoryPlan:
    return plan_memory("tiny", ModelShape.of_config(TINY), [1, 4], gpu_memory_gb)


def test_bytes_of_a_rank() -> None:
    # A layer: 4 matrices of 16 x 8 for attention, 3 for the MLP. Beside them 10 rows of 8, and 7 norms of 8.
    assert plan(1).num_parameters == 3 * 7 * 128 + 80 + 56
    whole, quarter, whole_int8, quarter_int8 = plan(1).rows
    assert whole.weight_bytes == 2 * (2688 + 136)
    # The vocabulary's 10 rows go into parts of 3; norms are whole.
    assert quarter.weight_bytes == 2 * (672 + 24 + 56)
    # One byte for each weight of the linears, four for each of their outputs: 3 x 16 + 8 of attention, 2 x 16 + 8.
    assert whole_int8.weight_bytes == 2688 + 4 * 3 * (56 + 40) + 2 * 136
    assert quarter_int8.weight_bytes == 672 + 4 * 3 * (20 + 16) + 2 * 80
    assert (whole.kv_bytes_per_token, quarter.kv_bytes_per_token) == (3 * 2 * 16 * 2, 3 * 2 * 4 * 2)


def test_an_output_projection_of_its_own_is_counted() -> None:
    untied = ModelShape.of_config({**TINY, "tie_word_embeddings": False})
    assert untied.num_parameters - plan(1).num_parameters == 80


def test_what_would_be_counted_wrong_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="'mixtral'"):
        ModelShape.of_config({**TINY, "model_type": "mixtral"})


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "gemma3", "gemma3_text"])
def test_sizes_that_are_left_out_are_transformers_defaults(model_type: str) -> None:
    theirs = CONFIG_MAPPING[model_type]().get_text_config()
    ours = ModelShape.of_config({"model_type": model_type, "num_hidden_layers": 2})
    assert (ours.num_layers, ours.hidden_size, ours.vocab_size) == (2, theirs.hidden_size, theirs.vocab_size)
    assert (ours.num_heads, ours.num_kv_heads) == (theirs.num_attention_heads, theirs.num_key_value_heads)
    assert ours.intermediate_size == theirs.intermediate_size


def test_the_drafter_is_told_as_a_share_of_the_target() -> None:
    shape = ModelShape.of_config(TINY)
    drafter = plan_memory("tiny", shape, [1], 80, drafter="head", drafter_bytes=shape.num_parameters // 5).drafter
    assert drafter is not None
    assert drafter.share == pytest.approx(0.1, abs=0.001)
    assert plan(80).drafter is None


def test_rank_0_keeps_features_whole_whatever_the_ranks() -> None:
    """What fits there decides: all ranks have the same blocks."""
    shape = ModelShape.of_config(TINY)
    rows = plan_memory("tiny", shape, [1, 4], 1e-4, num_feature_layers=3).rows
    assert {row.feature_bytes_per_token for row in rows} == {3 * 8 * 2}
    for row in rows:
        token_bytes = row.kv_bytes_per_token + 3 * 8 * 2
        assert row.num_kv_blocks == (90_000 - row.weight_bytes) // (16 * token_bytes) > 0


def test_the_page_says_what_fits() -> None:
    root = Path(__file__).parents[4]
    lines = (root / "docs" / "gpu.md").read_text().splitlines()
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "| llama-3.1-" in line]
    assert len(found) == 5
    for memory, model, ranks, weights, bytes_each, num_tokens in found:
        shape = ModelShape.of_config(read_json(root / "pilotfish" / "planning" / "data" / model / "config.json"))
        rows = plan_memory(model, shape, [int(ranks)], float(memory.split()[0])).rows
        row = next(row for row in rows if row.weights == weights)
        assert f"{row.weight_bytes / 1e9:.2f} GB" == bytes_each
        assert f"{row.num_kv_tokens:,}" == num_tokens
