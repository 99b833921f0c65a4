"""What ranks do together: add partial results, collect the logits.

Legend: T rows of a step, W width of a result, P width of a rank's part, N ranks.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import AllreduceOptions, FileStore, GatherOptions, ProcessGroupGloo  # type: ignore[attr-defined]

TIMEOUT = timedelta(minutes=30)
"""Time for a rank that lives and does not come. A lost one is noticed by its closed connection (see `watch.py`)."""


class RankGroup(Protocol):
    """One rank's view. Every call is made by all ranks, in the same order."""

    rank: int
    num_ranks: int

    def add(self, partial: Tensor) -> Tensor:
        """The sum [T, W] over the ranks; may be written over partial."""

    def gather(self, part: Tensor) -> Tensor:
        """The parts [T, P] side by side, [T, N * P], on rank 0; the others get their own part back."""


class ProcessGroup:
    """Ranks in processes of one machine: gloo on CPU (on the loopback interface), NCCL on CUDA.

    Until they meet, a rank is alone: its own part stands for the sum, and for every part. torch's backends are used
    themselves, without the process-wide default group. NCCL works on the current stream: a recorded step contains what
    it does.
    """

    def __init__(self, rank: int, num_ranks: int, device: torch.device, *, in_rank_order: bool) -> None:
        """in_rank_order: add in the order of the ranks and in float32, so that a row's sum does not depend on the
        other rows: the backends' own algorithms cut a tensor by its size."""
        self.rank = rank
        self.num_ranks = num_ranks
        self._device = device
        self._in_rank_order = in_rank_order
        # torch's stubs lack the operations of a backend. None until the ranks meet: one alone rehearses.
        self._backend: Any = None

    def connect(self, store: Path) -> None:
        """Meet the other ranks through a file, which may be removed afterwards. Waits for them."""
        self._backend = self._open(FileStore(str(store), self.num_ranks))
        # NCCL reads the store at its first call only.
        self.add(torch.ones(1, device=self._device))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, partial: Tensor) -> Tensor:
        if self._backend is None:
            return partial
        if not self._in_rank_order:
            options = AllreduceOptions()
            options.asyncOp = False
            _wait(self._backend.allreduce([partial], options))
            return partial
        parts = [torch.empty_like(partial) for _ in range(self.num_ranks)]
        self._backend.allgather([parts], [partial]).wait()
        total = parts[0].float()
        for part in parts[1:]:
            total += part
        return total.to(partial.dtype)

    def gather(self, part: Tensor) -> Tensor:
        if part.numel() == 0:  # a step that only prefills wants no logits
            return part.new_empty(*part.shape[:-1], part.shape[-1] * self.num_ranks)
        if self._backend is None:
            return torch.cat([part] * self.num_ranks, dim=-1)
        part = part.contiguous()
        parts = [torch.empty_like(part) for _ in range(self.num_ranks)] if self.rank == 0 else []
        options = GatherOptions()
        options.rootRank = 0
        options.asyncOp = False
        _wait(self._backend.gather([parts] if parts else [], [part], options))
        return torch.cat(parts, dim=-1) if parts else part

    def _open(self, store: FileStore) -> Any:
        if self._device.type == "cuda":
            return _open_nccl(store, self.rank, self.num_ranks)
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = TIMEOUT
        return ProcessGroupGloo(store, self.rank, self.num_ranks, options)


def _wait(work: Any) -> None:
    """Wait for gloo. NCCL gives nothing to wait for where it works on the current stream."""
    if work is not None:
        work.wait()


def _open_nccl(store: FileStore, rank: int, num_ranks: int) -> Any:
    from torch.distributed import ProcessGroupNCCL  # builds for CPU have none

    # Its monitor would go on looking into the store, which is gone.
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    options = ProcessGroupNCCL.Options()
    options._timeout = TIMEOUT
    return ProcessGroupNCCL(store, rank, num_ranks, options)
