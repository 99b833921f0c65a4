"""Tiny models in folders, and ranks as threads of this process: the arithmetic without the start of processes."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    ApertusConfig,
    ApertusForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.recorder import EagerRecorder
from pilotfish.models.graphs.runner import GraphPlan
from pilotfish.parallel.sharded_model import load_shard
from tests.support.row_attention import ReferenceBatch
from tests.unit.pilotfish.engine.conftest import drafts_are_free, eagle3_module, make_drafter, medusa_heads
from tests.unit.pilotfish.parallel.replica import CONTEXT, Replica

__all__ = ["drafts_are_free", "eagle3_module", "make_drafter", "medusa_heads"]

VOCAB = 98
"""Divides by 2 only: with 3 and 4 ranks the last part of the vocabulary is padded."""
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": CONTEXT,
}
ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0}
ROPE |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SMOLLM2_HEADS = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}


def tiny(kind: str) -> PreTrainedModel:
    """A random model in which attention, norms and biases matter."""
    torch.manual_seed(5)
    model: PreTrainedModel
    match kind:
        case "llama":
            model = LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=ROPE, attention_bias=True, mlp_bias=True))
        case "smollm2":
            model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **SMOLLM2_HEADS}, tie_word_embeddings=True))
        case "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
        case "qwen3":
            model = Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16))
        case "gemma3":
            layers = ["sliding_attention", "full_attention"]
            model = Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=20, layer_types=layers))
        case "apertus":  # its activation has buffers in the checkpoint
            model = ApertusForCausalLM(ApertusConfig(**SIZES))
        case _:
            raise AssertionError(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval().requires_grad_(False)


class ThreadGroup:
    """A RankGroup whose ranks are threads."""

    def __init__(self, rank: int, slots: list[Tensor | None], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.num_ranks = len(slots)
        self._slots = slots
        self._barrier = barrier

    def add(self, partial: Tensor) -> Tensor:
        parts = self._exchange(partial)
        return torch.stack(parts).sum(0)

    def gather(self, part: Tensor) -> Tensor:
        parts = self._exchange(part)
        return torch.cat(parts, dim=-1) if self.rank == 0 else part

    def _exchange(self, tensor: Tensor) -> list[Tensor]:
        self._slots[self.rank] = tensor
        self._barrier.wait(60)
        parts = [part for part in self._slots if part is not None]
        self._barrier.wait(60)
        return parts


class ThreadedRanks:
    """A Decoder over ranks in threads."""

    def __init__(self, folder: Path, num_ranks: int, dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
        """sizes: numbers of rows of which steps are recorded, by repeating them; then attention is the reference's."""
        slots: list[Tensor | None] = [None] * num_ranks
        barrier = threading.Barrier(num_ranks)
        groups = [ThreadGroup(rank, slots, barrier) for rank in range(num_ranks)]
        self._pool = ThreadPoolExecutor(num_ranks)
        self.ranks = [
            TransformersDecoder(
                load_shard(folder, group, dtype, torch.device("cpu")),
                deterministic=False,
                max_context_tokens=CONTEXT,
                row_attention=ReferenceBatch if sizes else None,
                graphs=GraphPlan(sizes, 4, CONTEXT, EagerRecorder()) if sizes else None,
            )
            for group in groups
        ]

    def allocate(self, num_blocks: int) -> Sequence[int]:
        num_bytes = [rank.allocate(num_blocks).num_bytes for rank in self.ranks]
        list(self._pool.map(lambda rank: rank.record_graphs(), self.ranks))
        return num_bytes

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        for rank in self.ranks:
            rank.move_kv(moves)

    def forward(self, step: StepInput) -> Tensor:
        first, *_ = self._pool.map(lambda rank: rank.forward(step), self.ranks)
        return first.clone()  # a recorded step is overwritten by the next one

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[PreTrainedModel, Path]]:
    """A tiny model by its kind, and its folder, in several safetensors files."""
    made: dict[str, tuple[PreTrainedModel, Path]] = {}

    def save(kind: str) -> tuple[PreTrainedModel, Path]:
        if kind not in made:
            model, folder = tiny(kind), tmp_path_factory.mktemp(kind)
            model.save_pretrained(folder, max_shard_size="100KB")
            made[kind] = model, folder
        return made[kind]

    return save


@pytest.fixture
def in_ranks(request: pytest.FixtureRequest) -> Callable[..., ThreadedRanks]:
    """ThreadedRanks of a folder."""

    def start(folder: Path, num_ranks: int, *, sizes: tuple[int, ...] = ()) -> ThreadedRanks:
        ranks = ThreadedRanks(folder, num_ranks, torch.float32, sizes)
        request.addfinalizer(ranks.close)
        return ranks

    return start


@pytest.fixture
def make_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., Replica]:
    """A Replica of a folder; start it."""

    def make(folder: Path, num_ranks: int = 2) -> Replica:
        replica = Replica(folder, tmp_path, num_ranks, monkeypatch)
        request.addfinalizer(replica.stop)
        return replica

    return make
