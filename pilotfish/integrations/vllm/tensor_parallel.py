"""Which of vLLM's tensor-parallel ranks asks, and how the others learn the answer."""

from __future__ import annotations

import importlib
from typing import Any

Drafts = list[list[int]]


class TensorParallelRanks:
    """The ranks that call `propose` together, each in its own process, with the same arguments."""

    def __init__(self, group: Any) -> None:
        """group: vLLM's GroupCoordinator; None for an engine without ranks."""
        self._group = group if group is not None and group.world_size > 1 else None

    @property
    def asks(self) -> bool:
        """Whether this rank is the one with a connection."""
        return self._group is None or self._group.rank_in_group == 0

    def share(self, drafts: Drafts) -> Drafts:
        """What the asking rank got, on all of them: a rank with other drafts would verify other tokens.

        vLLM 0.32 hands the drafts of that rank to all by its scheduler; on this nobody has to rely.
        """
        if self._group is None:
            return drafts
        shared: Drafts = self._group.broadcast_object(drafts if self.asks else None, src=0)
        return shared


def tensor_parallel_ranks(size: int) -> TensorParallelRanks:
    """The ranks of the worker that this process is. size: vLLM's tensor_parallel_size."""
    if size == 1:
        return TensorParallelRanks(None)
    # By name: outside vLLM's workers there is no vLLM to import.
    parallel_state = importlib.import_module("vllm.distributed.parallel_state")
    return TensorParallelRanks(parallel_state.get_tp_group())
