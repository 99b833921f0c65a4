"""What an engine does on a GPU before its first step, as far as it can be had without one."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process import gpu
from pilotfish.errors import ConfigError
from pilotfish.messages import Decode, OpenSequence, Verdict, Verify
from pilotfish.models import gpu_memory
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.recorder import EagerRecorder
from pilotfish.models.graphs.runner import GraphPlan
from pilotfish.types import ModelInfo, SamplingParams
from tests.support.engine_events import GreedyText, settle
from tests.support.row_attention import ReferenceBatch

GREEDY = SamplingParams(temperature=0, max_tokens=64)


PLAN = GraphPlan((2, 4, 16), 4, 128, EagerRecorder())


def decoder_of(model: LlamaForCausalLM, **graphs: Any) -> TransformersDecoder:
    return TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=128, **graphs)


def account(*, free: int, total: int, weights: int, peak: Callable[[], int]) -> SimpleNamespace:
    """What torch says of a GPU's memory, in bytes. peak: of the last step."""
    return SimpleNamespace(
        mem_get_info=lambda _device: (free, total),
        empty_cache=lambda: None,
        memory_allocated=lambda _device: weights,
        reset_peak_memory_stats=lambda _device: None,
        synchronize=lambda _device: None,
        max_memory_allocated=lambda _device: peak(),
    )


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's account of a GPU of 1 GB with 1 MB of weights, on which a step takes 2 MB."""
    monkeypatch.setattr(gpu_memory, "CONTEXT_BYTES", 100 * 10**6)
    cuda = account(free=900 * 10**6, total=10**9, weights=10**6, peak=lambda: 3 * 10**6)
    monkeypatch.setattr(gpu_memory.torch, "cuda", cuda)


class _OnGpu(TransformersDecoder):
    """A decoder that says that it is on a GPU."""

    device = property(lambda _: torch.device("cuda", 0), lambda _self, _device: None)  # type: ignore[assignment]

    def forward(self, step: Any) -> torch.Tensor:
        return torch.zeros(len(step.logit_rows), self.vocab_size)

    def allocate(self, num_blocks: int) -> Any:
        return SimpleNamespace(num_bytes=num_blocks * 10_000)


def test_a_number_of_tokens_stands_and_none_is_the_default_on_the_cpu(tiny_llama: LlamaForCausalLM) -> None:
    decoder = decoder_of(tiny_llama)
    engine = EngineConfig(kv_cache_tokens=640)
    assert gpu.with_kv_cache_tokens(engine, decoder) is engine
    sized = gpu.with_kv_cache_tokens(EngineConfig(kv_cache_tokens=0), decoder)
    assert sized.kv_cache_tokens == DEFAULT_KV_CACHE_TOKENS


@pytest.mark.usefixtures("on_gpu")
def test_on_a_gpu_the_cache_takes_what_is_left(tiny_llama: LlamaForCausalLM) -> None:
    decoder = _OnGpu(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=128)
    engine = EngineConfig(kv_cache_tokens=0, gpu_memory_utilization=0.5)
    left = 500 * 10**6 - 101 * 10**6 - 2 * 10**6
    # Two layers, and a step gathers at most twice one layer's keys.
    assert gpu.with_kv_cache_tokens(engine, decoder).kv_cache_tokens == (left // 20_000 - 1) * 16
    beside = gpu.with_kv_cache_tokens(engine, decoder, extra_bytes_per_block=30_000)
    assert beside.kv_cache_tokens == (left // 80_000 - 1) * 16


@pytest.mark.usefixtures("on_gpu")
def test_what_other_processes_hold_is_not_ours(tiny_llama: LlamaForCausalLM) -> None:
    decoder = _OnGpu(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=128)
    gpu_memory.torch.cuda.mem_get_info = lambda _device: (10**8, 10**9)  # type: ignore[assignment]
    engine = EngineConfig(kv_cache_tokens=0, gpu_memory_utilization=0.9)
    assert gpu.with_kv_cache_tokens(engine, decoder).kv_cache_tokens == (98 * 10**6 // 20_000 - 1) * 16


@pytest.mark.usefixtures("on_gpu")
def test_recorded_steps_take_memory_and_gather_nothing(tiny_llama: LlamaForCausalLM) -> None:
    decoder = _OnGpu(
        copy.deepcopy(tiny_llama),
        deterministic=False,
        max_context_tokens=128,
        row_attention=ReferenceBatch,
        graphs=PLAN,
    )
    engine = EngineConfig(kv_cache_tokens=0, gpu_memory_utilization=0.5)
    left = 500 * 10**6 - 101 * 10**6 - 2 * 2 * 10**6 - 3 * gpu_memory.GRAPH_BYTES
    assert gpu.with_kv_cache_tokens(engine, decoder).kv_cache_tokens == (left // 10_000 - 1) * 16


class _Llama8BOnL4(_OnGpu):
    """What steps of a Llama-3.1-8B allocate: 128,256 logits in two types for each row that wants them."""

    peak_bytes = 0

    def forward(self, step: Any) -> torch.Tensor:
        type(self).peak_bytes = 16_060_000_000 + len(step.token_ids) * 200_000 + len(step.logit_rows) * 128_256 * 6
        return super().forward(step)

    def allocate(self, num_blocks: int) -> Any:
        return SimpleNamespace(num_bytes=num_blocks * 16 * 131_072)


def test_logits_leave_room_for_the_cache(tiny_llama: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = account(
        free=23_000_000_000, total=23_600_000_000, weights=16_060_000_000, peak=lambda: _Llama8BOnL4.peak_bytes
    )
    monkeypatch.setattr(gpu_memory.torch, "cuda", cuda)
    plan = GraphPlan((1, 512), 64, 4096, EagerRecorder())
    decoder = _Llama8BOnL4(
        copy.deepcopy(tiny_llama),
        deterministic=False,
        max_context_tokens=4096,
        row_attention=ReferenceBatch,
        graphs=plan,
    )
    engine = EngineConfig(kv_cache_tokens=0, max_batch_tokens=2048)
    step_bytes = (2048 + 512) * 200_000 + 2 * 512 * 128_256 * 6 + 2 * gpu_memory.GRAPH_BYTES
    left = int(0.9 * 23_600_000_000) - 16_060_000_000 - gpu_memory.CONTEXT_BYTES - step_bytes
    found = gpu.with_kv_cache_tokens(engine, decoder).kv_cache_tokens
    assert found == (left // (16 * 131_072) - 1) * 16
    assert 20_000 < found < 27_000


@pytest.mark.usefixtures("on_gpu")
def test_a_cache_that_is_larger_than_the_memory_is_refused_with_the_numbers(tiny_llama: LlamaForCausalLM) -> None:
    """Before anything is recorded, and not by running out of memory. What features take counts."""
    decoder = _OnGpu(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=128)
    engine = EngineConfig(kv_cache_tokens=16 * 80_000)
    assert gpu.with_kv_cache_tokens(engine, decoder) is engine
    with pytest.raises(ConfigError, match=r"takes 0\.8 GB and 0\.2 GB for .* features; .* 0\.9 of 1\.0 GB are free"):
        gpu.with_kv_cache_tokens(engine, decoder, extra_bytes_per_block=2_000)


@pytest.mark.usefixtures("on_gpu")
def test_where_nothing_is_left_the_engine_does_not_start(tiny_llama: LlamaForCausalLM) -> None:
    decoder = _OnGpu(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=128)
    with pytest.raises(
        ConfigError, match=r"on cuda:0: of 1\.0 GB .* weights take 0\.1 GB.* step 0\.0 GB.*quantization"
    ):
        gpu.with_kv_cache_tokens(EngineConfig(kv_cache_tokens=0, gpu_memory_utilization=0.1), decoder)


@pytest.mark.parametrize("records", [False, True])
def test_an_engine_over_recorded_steps_is_lossless(
    tiny_llama: LlamaForCausalLM, greedy_text: GreedyText, records: bool
) -> None:
    """Three sequences, one with right drafts, one with wrong ones in a tree, one without: the target's own text."""
    decoder = decoder_of(tiny_llama, row_attention=ReferenceBatch, graphs=PLAN if records else None)
    info = ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=64, max_context_tokens=128)
    config = EngineConfig(kv_cache_tokens=1024, max_batch_tokens=48, dtype="float32", max_draft_tokens=8)
    core = EngineCore(decoder, config, info)
    gpu.record_graphs(decoder)
    prompts = {1: [5, 9, 3] * 4, 2: [7] * 17, 3: list(range(30))}
    expected = {key: greedy_text(prompt, 13) for key, prompt in prompts.items()}
    texts: dict[int, list[int]] = {key: [] for key in prompts}
    for key, prompt in prompts.items():
        core.submit(OpenSequence(key, tuple(prompt), GREEDY))
        core.submit(Decode(key, len(prompt), 1))
    while True:
        for event in settle(core):
            if isinstance(event, Verdict):
                texts[event.sequence_id] += event.token_ids
        if all(len(text) >= 13 for text in texts.values()):
            break
        for key, text in texts.items():
            if len(text) >= 13:
                continue
            length, ahead = len(prompts[key]) + len(text), tuple(expected[key][len(text) : len(text) + 3])
            wrong = tuple((token + 1) % 64 for token in ahead)
            if key == 1:
                core.submit(Verify(key, length, ahead))
            elif key == 2:
                core.submit(Verify(key, length, (*wrong[:1], *ahead[:1], *wrong[1:2]), parents=(-1, -1, 1)))
            else:
                core.submit(Decode(key, length, 1))
    assert {key: text[:13] for key, text in texts.items()} == expected
