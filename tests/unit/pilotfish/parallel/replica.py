"""Ranks as threads that talk as in processes of their own: real orders, real groups over gloo."""

import threading
from pathlib import Path

import pytest
import torch

from pilotfish.config import EngineConfig
from pilotfish.models.compiled import compile_layers
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.recorder import EagerRecorder
from pilotfish.models.graphs.runner import GraphPlan
from pilotfish.models.scaled_linear import weight_format_of
from pilotfish.parallel import rank as rank_module
from pilotfish.parallel import ranks
from pilotfish.parallel.channel import dial
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.messages import Setup
from pilotfish.parallel.rehearsal import RankPart
from pilotfish.parallel.sharded_model import load_shard
from tests.support.row_attention import ReferenceBatch

CONTEXT = 256


class Replica:
    """Ranks that load their parts as on a GPU, but compute on the CPU in float32, whatever the engine's device and
    dtype. Stop it."""

    def __init__(self, folder: Path, meeting_place: Path, num_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: dict[int, RankPart] = {}
        self.no_kernels: set[int] = set()
        """Ranks that have no attention kernels, so that nothing is recorded."""
        self._folder, self._meeting_place, self._num_ranks = folder, meeting_place, num_ranks
        for module in (ranks, rank_module):
            monkeypatch.setattr(module, "load_rank", self._load)
        monkeypatch.setattr(rank_module, "configure_logging", lambda *_: None)
        monkeypatch.setattr(ranks, "watch", lambda *_: None)  # a lost rank is one that has been stopped

    def _load(self, setup: Setup, rank: int) -> RankPart:
        threading.current_thread().name = f"rank {rank}"
        group = ProcessGroup(rank, self._num_ranks, torch.device("cpu"), in_rank_order=False)
        weight_format = weight_format_of(setup.engine.quantization)
        model = load_shard(self._folder, group, torch.float32, torch.device("cpu"), weight_format)
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
        self._others = [threading.Thread(target=self._run, args=(rank,)) for rank in range(1, self._num_ranks)]
        for thread in self._others:
            thread.start()
        setup = Setup(self._num_ranks, str(self._folder), engine, "WARNING", "human")
        with ranks.meet(self._meeting_place) as meeting:
            self.decoder = ranks.start_ranks(setup, meeting)
        return self.decoder

    def _run(self, rank: int) -> None:
        peer = dial(self._meeting_place, rank, 20)
        with pytest.raises((EOFError, ConnectionError)):  # when rank 0 has ended
            rank_module.serve(peer, *rank_module.start(peer, rank))

    def stop(self) -> None:
        """The other ranks have nothing more to read."""
        self.decoder._channel.close()
        for thread in self._others:
            thread.join(20)
            assert not thread.is_alive()
