"""How models can be cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.errors import ConfigError, UnsupportedModelError
from pilotfish.parallel.sizes import ModelSizes, bounds

LLAMA_70B = ModelSizes(num_heads=64, num_kv_heads=8, intermediate_size=28672)
SMOLLM2 = ModelSizes(num_heads=9, num_kv_heads=3, intermediate_size=1536)


@given(st.integers(1, 1000), st.integers(1, 16))
def test_the_parts_cover_a_dimension_once(size: int, num_ranks: int) -> None:
    parts = [bounds(size, rank, num_ranks) for rank in range(num_ranks)]
    covered = [index for part in parts for index in range(part.start, part.end)]
    assert covered == list(range(size))
    assert {part.padded for part in parts} == {-(-size // num_ranks)}
    assert all(part.end - part.start <= part.padded for part in parts)


@pytest.mark.parametrize(("sizes", "count", "possible"), [(LLAMA_70B, 3, "1, 2, 4, 8"), (SMOLLM2, 2, "1, 3")])
def test_others_are_refused_with_those_that_work(sizes: ModelSizes, count: int, possible: str) -> None:
    with pytest.raises(ConfigError, match=f"target.x is {count}; a-model has .* into {possible}: choose"):
        sizes.require(count, model="a-model", setting="target.x")


def test_sizes_of_a_configuration() -> None:
    config = {"num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672}
    assert ModelSizes.of_config(config) == LLAMA_70B
    assert ModelSizes.of_config({"text_config": config}) == LLAMA_70B
    assert ModelSizes.of_config({"num_attention_heads": 4, "intermediate_size": [8, 12]}) == ModelSizes(4, 4, 4)
    with pytest.raises(UnsupportedModelError, match="'gpt2' model cannot be cut"):
        ModelSizes.of_config({"model_type": "gpt2", "n_head": 12})
