"""How the work of a step is recorded: as a CUDA graph, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], None]
"""Reads and writes tensors that stay where they are, and leaves nothing to the host to decide."""

NUM_WARM_UP_RUNS = 2
"""Libraries choose kernels and take workspaces in their first calls, which must not be recorded."""


class GraphRecorder(Protocol):
    """Makes of work something that repeats it. Work may be run several times while it is recorded."""

    def record(self, work: Work) -> Work:
        """What does the same again, with what the tensors hold then."""


class EagerRecorder:
    """Repeats the work itself: on any device, and to compare with."""

    def record(self, work: Work) -> Work:
        work()
        return work


class CudaGraphRecorder:
    """Records CUDA graphs that share their memory: what one computes is gone when another one runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Work) -> Work:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(NUM_WARM_UP_RUNS):
                work()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the engine may allocate pinned memory meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


def recorder_for(device: torch.device) -> GraphRecorder:
    """CUDA graphs where there is CUDA."""
    return CudaGraphRecorder(device) if device.type == "cuda" else EagerRecorder()
