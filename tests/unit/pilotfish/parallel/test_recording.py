"""Ranks record the same steps in the same order, or none of them runs."""

import copy
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pilotfish.config import EngineConfig
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.parallel import decoder as parallel_decoder
from pilotfish.parallel import ranks
from pilotfish.parallel.channel import RankPeer, accept_ranks, dial, listen
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.messages import Abilities, Join, Loaded, Setup
from pilotfish.parallel.rank import serve
from pilotfish.parallel.ranks import meet, start_ranks
from pilotfish.parallel.rehearsal import RankPart
from tests.unit.pilotfish.parallel.test_sharded_model import conversation

SIZES = (1, 4, 8, 32)


def test_recorded_ranks_equal_one_process(saved_model: Callable[[str], Any], in_ranks: Callable[..., Any]) -> None:
    """Each sum waits for all ranks, and sums of other steps would have other shapes."""
    model, folder = saved_model("llama")
    parallel = in_ranks(folder, 2, sizes=SIZES)
    parts = conversation(parallel)
    assert all(rank._graphs.is_recorded for rank in parallel.ranks)
    whole = TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=256)
    for name, expected in conversation(whole).items():
        assert (parts[name] - expected).abs().max() < 1e-3, name


class Fake:
    """A decoder that says when it records, or cannot."""

    name, vocab_size, max_context_tokens, dtype, device = "fake", 8, 64, torch.float32, torch.device("cpu")
    num_graphs = 1
    row_attention = graph_plan = None

    def __init__(self, error: Exception | None = None) -> None:
        self.has_begun = threading.Event()
        self._error = error

    def record_graphs(self) -> None:
        self.has_begun.set()
        if self._error is not None:
            raise self._error


def part_of(fake: Fake) -> RankPart:
    return RankPart(fake, SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize("failing", [None, 0, 1])
def test_all_ranks_record_and_an_error_ends_the_rank_that_has_it(
    failing: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(message: str) -> None:
        raise SystemExit(message)

    monkeypatch.setattr(parallel_decoder, "end_process", end)
    fakes = [Fake(MemoryError("no room") if rank == failing else None) for rank in (0, 1)]
    with listen(tmp_path) as listener:
        peer = dial(tmp_path, 1, 5)
        channel = accept_ranks(listener, 2, 5, lambda: None)
    ends: list[Exception] = []

    def be_rank_1() -> None:
        try:
            serve(peer, part_of(fakes[1]), EngineConfig())
        except Exception as error:  # which ends the process of a rank, see rank.run
            ends.append(error)

    thread = threading.Thread(target=be_rank_1)
    thread.start()
    abilities = Abilities(kernels=True, compiled=False)
    decoder = ParallelDecoder(part_of(fakes[0]), channel, abilities, tmp_path, lambda ranks: end(f"lost: {ranks}"))
    if failing == 0:
        with pytest.raises(SystemExit, match="failed on rank 0: MemoryError: no room: this replica ends"):
            decoder.record_graphs()
    else:
        decoder.record_graphs()
    assert fakes[1].has_begun.wait(10)
    if failing == 1:
        peer.close()
        with pytest.raises(SystemExit, match=r"lost: \[1\]"):
            decoder.record_graphs()
    channel.close()
    thread.join(10)
    assert isinstance(ends[0], MemoryError if failing == 1 else EOFError)


def setup_of(folder: Path) -> Setup:
    engine = EngineConfig(dtype="float32", num_threads=torch.get_num_threads(), max_context_tokens=64)
    return Setup(2, str(folder), engine, "WARNING", "human")


@contextmanager
def with_rank_1(folder: Path, answer: Callable[[RankPeer], None]) -> Iterator[None]:
    """Rank 1, which does as said once it has been set up."""

    def run() -> None:
        peer = dial(folder, 1, 20)
        peer.receive()
        answer(peer)

    rank = threading.Thread(target=run)
    rank.start()
    yield
    rank.join(30)


def test_a_rank_that_is_lost_while_the_others_wait_for_it_ends_the_start(
    saved_model: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(peer: RankPeer) -> None:
        peer.send(Loaded(Abilities(kernels=False, compiled=False)))
        assert isinstance(peer.receive(), Join)
        peer.close()

    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(ranks, "end_process", ended.put)
    said: list[str] = []
    monkeypatch.setattr(ProcessGroup, "connect", lambda *_: said.append(ended.get(timeout=10)))
    with meet(tmp_path) as meeting, with_rank_1(tmp_path, answer):
        start_ranks(setup_of(saved_model("llama")[1]), meeting)
    assert said == ["rank 1 of 2 ended: this replica ends with it"]
