"""The kernels on quantised weights give bit for bit what they give on the bfloat16 weights those stand for."""

import copy
import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.config import Quantization
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.determinism import blocks_needed, is_batch_invariant
from pilotfish.models.native import build
from pilotfish.models.native.build import CPUINFO, FLAGS, VARIANTS
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.native.layout import Format, unsupported_reason
from pilotfish.models.native.quantise import quantise_as
from tests.support.quantised_weights import dequantise
from tests.support.tiny_models import tiny_model

VOCAB = 96
SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 128}
TOKENS = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(1)).tolist()
CUTS = [[60], [1, 2, 40, 11, 5, 1], [12, 13, 24, 11]]
"""Fewer rows than a tile, one tile, several."""


def tiny(kind: str) -> PreTrainedModel:
    # Qwen2 has biases, and an output projection of its own.
    return tiny_model(kind, torch.bfloat16, **SIZES)


def restored(model: PreTrainedModel, quantization: Quantization) -> PreTrainedModel:
    """A copy of the model with the bfloat16 weights that its quantised ones stand for."""
    model = copy.deepcopy(model)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and ("proj" in name or parameter is model.get_output_embeddings().weight):
            of_head = parameter is model.get_output_embeddings().weight
            found = quantise_as(parameter, "int8" if of_head else quantization)
            assert found is not None
            parameter.copy_(dequantise(found[0]))
    return model


def native(model: PreTrainedModel, cache: Path, quantization: Quantization = "none") -> NativeDecoder:
    assert unsupported_reason(model, quantization) is None
    decoder = NativeDecoder(
        copy.deepcopy(model), max_context_tokens=128, num_threads=2, cache_dir=cache, quantization=quantization
    )
    decoder.allocate(blocks_needed())
    return decoder


def logits(decoder: NativeDecoder, cuts: list[int]) -> Tensor:
    parts, start = [], 0
    for size in cuts:
        rows = range(start, start + size)
        step = StepInput(TOKENS[start : start + size], rows, [SequenceSlice(0, size, start, [7, 3, 5, 9])], range(size))
        parts.append(decoder.forward(step).clone())
        start += size
    return torch.cat(parts)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral"])
def test_logits_equal_those_of_the_restored_weights(kind: str, quantization: Quantization, kernel_cache: Path) -> None:
    model = tiny(kind)
    ours, plain = native(model, kernel_cache, quantization), native(restored(model, quantization), kernel_cache)
    expected = logits(plain, CUTS[0])
    assert not torch.equal(expected, logits(native(model, kernel_cache), CUTS[0])), (
        "quantising must have changed something"
    )
    for cuts in CUTS:
        assert torch.equal(logits(ours, cuts), expected), cuts
    assert is_batch_invariant(ours)


@pytest.mark.parametrize(
    ("march", "quantizations"), [("x86-64-v4", ["int8"]), ("x86-64-v3", ["int8", "int4"]), ("", ["int4"])]
)
def test_with_shorter_registers_as_well(
    march: str,
    quantizations: list[Quantization],
    kernel_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 64 bytes, without bfloat16 products, of 32 bytes and of 16."""
    if march and (platform.machine() != "x86_64" or not runs_here(march)):
        pytest.skip(f"this processor does not run code for {march}")
    model = tiny("llama")
    flags = [flag for flag in FLAGS if flag != "-march=native"] + ["-O0", "-Wno-psabi"]
    for quantization in quantizations:
        own = logits(native(restored(model, quantization), kernel_cache), CUTS[0])
        with monkeypatch.context() as patched:
            patched.setattr(build, "FLAGS", (*flags, f"-march={march}") if march else tuple(flags))
            expected = logits(native(restored(model, quantization), tmp_path), CUTS[0])
            assert (expected - own).norm() / own.norm() < 0.01
            for cuts in CUTS:
                assert torch.equal(logits(native(model, tmp_path, quantization), cuts), expected), cuts


def runs_here(march: str) -> bool:
    """Whether this processor has what a variant needs."""
    needs = {variant.name: variant.needs for variant in VARIANTS}
    return march not in needs or needs[march] <= set(CPUINFO.read_text(encoding="utf-8").split())


def formats_of(decoder: NativeDecoder) -> set[str]:
    linears = [decoder._weights.model_struct.head]
    for layer in decoder._weights.layer_structs:
        linears += (layer.qkv, layer.output, layer.gate_up, layer.down)
    return {Format(weights.format).name for weights in linears}


def test_lossless_changes_nothing_and_packs_what_it_can(kernel_cache: Path) -> None:
    noise = tiny("llama")
    known = restored(noise, "int4")
    formats = []
    for model in (noise, known):
        ours, plain = native(model, kernel_cache, "lossless"), native(model, kernel_cache)
        assert torch.equal(logits(ours, CUTS[1]), logits(plain, CUTS[0]))
        formats.append(formats_of(ours))
    assert formats == [{"BFLOAT16"}, {"INT4", "INT8"}]
