"""Ranks agree on what they run and on the size of their cache: real groups over gloo, a thread for each rank."""

import copy
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.process.gpu import with_kv_cache_tokens
from pilotfish.errors import ConfigError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.gpu_memory import GRAPH_BYTES
from pilotfish.types import BLOCK_SIZE
from tests.unit.pilotfish.parallel.replica import CONTEXT, Replica
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


@pytest.fixture
def replica(saved_model: Callable[[str], Any], make_replica: Callable[..., Replica]) -> Replica:
    return make_replica(saved_model("llama")[1])


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
