"""The order of things when a CUDA graph is recorded, over a stand-in for torch.cuda."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pilotfish.models.graphs.recorder import NUM_WARM_UP_RUNS, CudaGraphRecorder, EagerRecorder, recorder_for

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of torch.cuda, in order."""
    calls: list[str] = []

    class Stream:
        def __init__(self, name: object) -> None:
            self.name = "side" if isinstance(name, torch.device) else str(name)

        def wait_stream(self, other: Stream) -> None:
            calls.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self) -> None:
            calls.append("replay")

    @contextmanager
    def stream(used: Stream) -> Iterator[None]:
        calls.append(f"on {used.name}")
        yield
        calls.append("on current")

    @contextmanager
    def graph(recorded: Graph, *, pool: str, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        calls.append(f"capture on {stream.name} into {pool}, {capture_error_mode}")
        yield
        calls.append("captured")

    current = Stream("current")
    fakes: dict[str, Any] = {
        "Stream": Stream,
        "stream": stream,
        "graph": graph,
        "CUDAGraph": Graph,
        "current_stream": lambda _device: current,
        "graph_pool_handle": lambda: "the pool",
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return calls


def test_work_is_warmed_up_beside_and_captured_once(log: list[str]) -> None:
    recorder = CudaGraphRecorder(DEVICE)
    replay = recorder.record(lambda: log.append("work"))
    capture = ["capture on side into the pool, thread_local", "work", "captured"]
    warm_up = ["side waits for current", "on side", *["work"] * NUM_WARM_UP_RUNS, "on current"]
    assert log == [*warm_up, "current waits for side", *capture]
    log.clear()
    replay()
    assert log == ["replay"]


def test_graphs_share_one_pool(log: list[str]) -> None:
    recorder = CudaGraphRecorder(DEVICE)
    for _ in range(2):
        recorder.record(lambda: None)
    assert sum("into the pool" in call for call in log) == 2


@pytest.mark.usefixtures("log")
def test_there_are_graphs_on_cuda_alone() -> None:
    assert isinstance(recorder_for(DEVICE), CudaGraphRecorder)
    assert isinstance(recorder_for(torch.device("cpu")), EagerRecorder)


def test_without_graphs_the_work_itself_is_repeated() -> None:
    runs: list[int] = []
    again = EagerRecorder().record(lambda: runs.append(1))
    again()
    assert len(runs) == 2
