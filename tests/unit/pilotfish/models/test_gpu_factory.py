"""Decoders as on a GPU, built on the CPU: the same steps, with recording replaced by repetition."""

import copy
import functools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig, Quantization
from pilotfish.errors import ConfigError
from pilotfish.models import factory, gpu_factory
from pilotfish.models.attention.paged import AttentionShape, SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.gpu_factory import build_gpu_decoder, choose_attention
from pilotfish.models.graphs.runner import recorded_sizes
from pilotfish.models.loading import LoadedModel
from pilotfish.models.scaled_linear import ScaledLinear
from tests.support.row_attention import ReferenceBatch
from tests.support.tiny_llama import tiny_llama

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny_llama(2, spread=1.0, max_position_embeddings=64)


@pytest.mark.parametrize(("quantization", "graphs"), [("none", False), ("int8", True)])
def test_a_decoder_computes_the_model(
    model: LlamaForCausalLM, quantization: Quantization, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_factory, "choose_attention", lambda *_: ReferenceBatch)
    ours = copy.deepcopy(model)
    engine = EngineConfig(quantization=quantization, cuda_graphs=graphs, max_sequences=2, max_draft_tokens=3)
    decoder = build_gpu_decoder(ours, engine, CPU, max_context_tokens=64)
    assert any(isinstance(module, ScaledLinear) for module in ours.modules()) == (quantization == "int8")
    decoder.allocate(8)
    decoder.record_graphs()
    assert decoder.num_graphs == (len(recorded_sizes()) if graphs else 0)
    tokens = list(range(9))
    decoder.forward(StepInput(tokens[:6], range(6), [SequenceSlice(0, 6, 0, [3])], []))
    logits = decoder.forward(StepInput(tokens[6:], range(6, 9), [SequenceSlice(0, 3, 6, [3])], range(3)))
    theirs = model(torch.tensor([tokens])).logits[0, 6:]
    assert (logits - theirs).norm() / theirs.norm() < (0.05 if quantization == "int8" else 1e-4)


def test_nothing_is_promised_about_batches(
    model: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = functools.partial(build_gpu_decoder, device=CPU)
    monkeypatch.setattr(factory, "build_gpu_decoder", lambda model, engine, _, **more: on_cpu(model, engine, **more))
    loaded = LoadedModel(copy.deepcopy(model), tmp_path, "tiny", 64, 64, "none")
    engine = EngineConfig(max_context_tokens=32)
    built = factory.build_decoder(loaded, engine, num_threads=1, cache_dir=tmp_path, device=CUDA)
    assert not built.deterministic
    assert (built.decoder.name, built.decoder.max_context_tokens) == ("transformers", 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantization": "int4", "device": "auto"}, "set engine.device to cpu"),
        ({"quantization": "fp8", "device": "cuda"}, "CUDA device"),
    ],
)
def test_formats_that_cannot_be_had_are_refused(
    model: LlamaForCausalLM, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_gpu_decoder(copy.deepcopy(model), EngineConfig(**settings), CPU, max_context_tokens=64)


LAYERS = [AttentionShape(num_kv_heads=8, head_dim=128, scale=0.1)]


@pytest.mark.parametrize(
    ("window", "device", "obstacle"),
    [
        (None, CUDA, r"Triton cannot run its kernels here \(.+\)"),
        (32, CUDA, "window of 32 tokens"),
        (None, CPU, "CUDA device, not cpu"),
    ],
)
def test_auto_falls_back_to_sdpa_and_a_demand_does_not(
    monkeypatch: pytest.MonkeyPatch, window: int | None, device: torch.device, obstacle: str
) -> None:
    monkeypatch.setitem(sys.modules, "pilotfish.models.attention.kernels", None)  # as where Triton is not there
    layers = [*LAYERS, AttentionShape(num_kv_heads=8, head_dim=128, scale=0.1, sliding_window=window)]
    assert choose_attention("auto", layers, 4, torch.bfloat16, device) is None
    assert choose_attention("sdpa", layers, 4, torch.bfloat16, device) is None
    with pytest.raises(ConfigError, match=rf"engine\.attention is triton, but .*{obstacle}.*: set it to auto or sdpa"):
        choose_attention("triton", layers, 4, torch.bfloat16, device)
