"""Ranks agree on what they run and on the size of their cache: real groups over gloo, a thread for each rank."""

import copy
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.process.gpu import with_kv_cache_tokens
from pilotfish.errors import ConfigError
from pilotfish.models.compiled import compile_layers
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.gpu_memory import GRAPH_BYTES
from pilotfish.models.graphs.recorder import EagerRecorder
from pilotfish.models.graphs.runner import GraphPlan
from pilotfish.parallel import rank as rank_module
from pilotfish.parallel import ranks
from pilotfish.parallel.channel import dial
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.messages import Setup
from pilotfish.parallel.rehearsal import RankPart
from pilotfish.parallel.sharded_model import load_shard
from pilotfish.types import BLOCK_SIZE
from tests.support.row_attention import ReferenceBatch
from tests.unit.pilotfish.parallel.conftest import CONTEXT
from tests.unit.pilotfish.parallel.test_sharded_model import conversation

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


class Compilers:
    """Stands for torch.compile: of each rank, which is a thread, with or without a C compiler."""

    def __init__(self, without: set[str]) -> None:
        self._without = without
        self.num_calls: dict[str, int] = {}

    def compile(self, function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            rank = threading.current_thread().name
            if rank in self._without:
                raise torch._dynamo.exc.InternalTorchDynamoError("Failed to find C compiler")
            self.num_calls[rank] = self.num_calls.get(rank, 0) + 1
            return function(*args, **kwargs)

        return compiled


class Replica:
    """Two ranks that load a part as on a GPU and talk as in processes of their own."""

    def __init__(self, folder: Path, meeting_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: dict[int, RankPart] = {}
        self.no_kernels: set[int] = set()
        self._folder, self._meeting_place = folder, meeting_place
        for module in (ranks, rank_module):
            monkeypatch.setattr(module, "load_rank", self._load)

    def _load(self, setup: Setup, rank: int) -> RankPart:
        threading.current_thread().name = f"rank {rank}"
        group = ProcessGroup(rank, 2, torch.device("cpu"), in_rank_order=False)
        model = load_shard(self._folder, group, torch.float32, torch.device("cpu"))
        kernels = rank not in self.no_kernels
        decoder = TransformersDecoder(
            model,
            deterministic=False,
            max_context_tokens=CONTEXT,
            row_attention=ReferenceBatch if kernels else None,
            graphs=GraphPlan((1, 4, 8, 32), 4, CONTEXT, EagerRecorder()) if kernels else None,
        )
        uncompile = compile_layers(model, falls_back=False) if setup.engine.compile else None
        self.parts[rank] = RankPart(decoder, group, uncompile)
        return self.parts[rank]

    def start(self, engine: EngineConfig) -> ParallelDecoder:
        def be_rank_1() -> None:
            peer = dial(self._meeting_place, 1, 20)
            with pytest.raises((EOFError, ConnectionError)):  # when rank 0 has ended
                rank_module.serve(peer, *rank_module.start(peer, 1))

        self._rank_1 = threading.Thread(target=be_rank_1)
        self._rank_1.start()
        self.decoder = ranks.start_ranks(Setup(2, str(self._folder), engine, "WARNING", "human"), self._meeting_place)
        return self.decoder

    def stop(self) -> None:
        """Rank 1 has nothing more to read."""
        self.decoder._channel.close()
        self._rank_1.join(20)
        assert not self._rank_1.is_alive()


@pytest.fixture
def replica(saved_model: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    monkeypatch.setattr(rank_module, "configure_logging", lambda *_: None)
    monkeypatch.setattr(ranks, "watch", lambda *_: None)  # a lost rank is one that has been stopped
    replica = Replica(saved_model("llama")[1], tmp_path, monkeypatch)
    yield replica
    replica.stop()


def check_text(replica: Replica, model: Any) -> None:
    """The replica computes what the whole model does."""
    expected = conversation(TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=CONTEXT))
    for name, logits in conversation(replica.decoder).items():
        assert (logits - expected[name]).abs().max() < 1e-3, name


@pytest.mark.parametrize("without", [set(), {"rank 0"}, {"rank 1"}], ids=["none", "rank 0", "rank 1"])
def test_where_one_rank_cannot_compile_none_does(
    replica: Replica,
    saved_model: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    without: set[str],
) -> None:
    caplog.set_level(logging.WARNING)
    compilers = Compilers(without)
    monkeypatch.setattr(torch, "compile", compilers.compile)
    replica.start(EngineConfig(dtype="float32", max_context_tokens=CONTEXT))
    rehearsed = dict(compilers.num_calls)
    check_text(replica, saved_model("llama")[0])
    assert (compilers.num_calls == rehearsed) == bool(without), "compiled layers ran in the steps"
    assert ("C compiler" in caplog.text) == bool(without)
    assert ("layers uncompiled on all ranks, because of ranks [1]" in caplog.text) == (without == {"rank 1"})


@pytest.mark.parametrize("without", [0, 1])
def test_where_one_rank_has_no_kernels_none_records(
    replica: Replica, saved_model: Callable[[str], Any], without: int
) -> None:
    """As where Triton cannot run on one of them."""
    replica.no_kernels = {without}
    decoder = replica.start(EngineConfig(dtype="float32", max_context_tokens=CONTEXT, compile=False))
    assert decoder.num_graphs == 0
    decoder.allocate(12)
    decoder.record_graphs()
    check_text(replica, saved_model("llama")[0])
    assert [part.decoder.row_attention for part in replica.parts.values()] == [None, None]


class Gpus:
    """torch's account of a GPU for each rank, of 1 GB of which so much is free."""

    def __init__(self, free_bytes: dict[str, int]) -> None:
        self._free_bytes = free_bytes

    def mem_get_info(self, _device: object) -> tuple[int, int]:
        return self._free_bytes[threading.current_thread().name], 10**9

    def memory_allocated(self, _device: object) -> int:
        return 0

    def max_memory_allocated(self, _device: object) -> int:
        return 0

    def empty_cache(self) -> None: ...

    def reset_peak_memory_stats(self, _device: object) -> None: ...

    def synchronize(self, _device: object) -> None: ...


@pytest.mark.parametrize("fullest", [0, 1])
def test_all_ranks_have_the_cache_that_the_fullest_gpu_has_room_for(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, fullest: int
) -> None:
    decoder = replica.start(EngineConfig(dtype="float32", max_context_tokens=CONTEXT, compile=False))
    decoder.device = torch.device("cuda", 0)
    free_bytes = {f"rank {rank}": 10**8 if rank == fullest else 2 * 10**8 for rank in (0, 1)}
    monkeypatch.setattr(torch, "cuda", Gpus(free_bytes))
    room = 10**8 - decoder.num_graphs * GRAPH_BYTES
    sized = with_kv_cache_tokens(EngineConfig(kv_cache_tokens=0), decoder)
    bytes_per_block = decoder.allocate(1).num_bytes
    assert sized.kv_cache_tokens == (room // bytes_per_block - 1) * BLOCK_SIZE

    free_bytes[f"rank {fullest}"] = bytes_per_block
    with pytest.raises(ConfigError, match=rf"no memory is left for the KV cache on rank {fullest}'s GPU: of 1.0 GB "):
        with_kv_cache_tokens(EngineConfig(kv_cache_tokens=0), decoder)
    # What a drafter keeps beside each block is rank 0's alone.
    free_bytes |= {"rank 0": 10**8, "rank 1": 10**8}
    beside = with_kv_cache_tokens(EngineConfig(kv_cache_tokens=0), decoder, extra_bytes_per_block=bytes_per_block)
    assert beside.kv_cache_tokens == (room // (bytes_per_block * 2) - 1) * BLOCK_SIZE
