"""What a model consists of, without its weights: of a 70B on the meta device."""

from pathlib import Path

import pytest

import pilotfish
from pilotfish.parallel.inventory import Inventory
from pilotfish.parallel.sizes import Cut, local_shape
from pilotfish.parallel.take_inventory import inventory_of

LLAMA_70B = Path(pilotfish.__file__).parent / "planning" / "data" / "llama-3.1-70b"


@pytest.fixture(scope="module")
def llama_70b() -> Inventory:
    return inventory_of(LLAMA_70B)


def test_every_matrix_of_a_70b_has_a_shard(llama_70b: Inventory) -> None:
    assert llama_70b.num_parameters == 70_553_706_496
    assert len(llama_70b.parameters) == 80 * 9 + 3
    for parameter in llama_70b.parameters:
        is_norm = len(parameter.shape) == 1
        assert (parameter.cut is Cut.WHOLE) == is_norm, parameter.name
    assert {(layer.num_kv_heads, layer.head_dim) for layer in llama_70b.layers} == {(8, 128)}


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_the_shards_of_a_70b_make_the_whole(llama_70b: Inventory, num_ranks: int) -> None:
    for parameter in llama_70b.parameters:
        local = local_shape(parameter.shape, parameter.cut, num_ranks)
        changed = [whole // part for whole, part in zip(parameter.shape, local, strict=True) if whole != part]
        assert changed == ([] if parameter.cut is Cut.WHOLE else [num_ranks]), parameter.name
