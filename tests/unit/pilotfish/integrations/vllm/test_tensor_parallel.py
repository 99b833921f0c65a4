"""One rank asks; all ranks have its answer."""

import sys
import types
from typing import Any

import pytest

from pilotfish.integrations.vllm.tensor_parallel import TensorParallelRanks, tensor_parallel_ranks


class Group:
    """A rank of vLLM's group whose broadcasts go through a list."""

    def __init__(self, rank: int, wire: list[Any], world_size: int = 2) -> None:
        self.rank_in_group = rank
        self.world_size = world_size
        self._wire = wire

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        if self.rank_in_group == src:
            self._wire.append(obj)
        return self._wire[-1]


def test_all_ranks_use_the_drafts_of_the_one_that_asks() -> None:
    wire: list[Any] = []
    first, second = TensorParallelRanks(Group(0, wire)), TensorParallelRanks(Group(1, wire))
    assert (first.asks, second.asks) == (True, False)
    assert first.share([[1, 2], []]) == [[1, 2], []]
    assert second.share([[], []]) == [[1, 2], []]


def test_the_group_is_vllms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    wire: list[Any] = []
    state = types.ModuleType("vllm.distributed.parallel_state")
    state.get_tp_group = lambda: Group(1, wire)  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.distributed"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.distributed.parallel_state", state)
    assert not tensor_parallel_ranks(2).asks
    assert tensor_parallel_ranks(1).asks
