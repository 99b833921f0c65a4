"""The kernels on quantised weights: bit for bit what they give on the bfloat16 weights those stand for (lossless), or
near it, with inputs of eight bits (int8, int4). Either way no row's result depends on what else is in the step."""

import copy
import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.config import Quantization
from pilotfish.models.determinism import blocks_needed, is_batch_invariant
from pilotfish.models.native import build
from pilotfish.models.native.build import CPUINFO, FLAGS, VARIANTS, variants_here
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.native.layout import Format, unsupported_reason
from pilotfish.models.native.quantise import quantise_as
from tests.support.native_kernels import NamedKernels, compiled_for, logits_in_steps
from tests.support.quantised_weights import dequantise
from tests.support.tiny_models import tiny_model

VOCAB = 96
SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 128}
TOKENS = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(1)).tolist()
CUTS = [[60], [1, 2, 40, 11, 5, 1], [12, 13, 24, 11]]
"""Fewer rows than a tile, about one tile, several."""


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


def native(
    model: PreTrainedModel,
    cache: Path,
    quantization: Quantization = "none",
    kernels: NamedKernels = "auto",
    num_threads: int = 2,
) -> NativeDecoder:
    assert unsupported_reason(model, quantization) is None
    with compiled_for(kernels) as named:
        decoder = NativeDecoder(
            copy.deepcopy(model),
            max_context_tokens=128,
            num_threads=num_threads,
            cache_dir=cache,
            quantization=quantization,
            kernels=named,
        )
    decoder.allocate(blocks_needed())
    return decoder


def logits(decoder: NativeDecoder, cuts: list[int]) -> Tensor:
    return logits_in_steps(decoder, TOKENS, cuts)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral"])
def test_lossless_gives_the_logits_of_the_restored_weights(
    kind: str, quantization: Quantization, kernel_cache: Path, kernels: NamedKernels
) -> None:
    model = restored(tiny(kind), quantization)
    ours = native(model, kernel_cache, "lossless", kernels)
    expected = logits(native(model, kernel_cache, kernels=kernels), CUTS[0])
    assert formats_of(ours) == ({"INT8"} if quantization == "int8" else {"INT4", "INT8"})
    for cuts in CUTS:
        assert torch.equal(logits(ours, cuts), expected), cuts


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral"])
def test_inputs_of_eight_bits_give_nearly_those_logits(
    kind: str, quantization: Quantization, kernel_cache: Path, kernels: NamedKernels
) -> None:
    model = tiny(kind)
    ours = native(model, kernel_cache, quantization, kernels)
    exact = native(restored(model, quantization), kernel_cache, kernels=kernels)
    expected = logits(exact, CUTS[0])
    found = logits(ours, CUTS[0])
    assert not torch.equal(found, expected), "the inputs must have been rounded"
    assert (found - expected).norm() / expected.norm() < 0.02
    for cuts in CUTS:
        assert torch.equal(logits(ours, cuts), found), cuts
    assert is_batch_invariant(ours)
    assert torch.equal(logits(native(model, kernel_cache, quantization, kernels, num_threads=1), CUTS[0]), found)


@pytest.mark.parametrize("quantization", ["none", "lossless", "int8", "int4"])
def test_many_inputs_in_pieces_give_the_same_logits_for_any_number_of_rows(
    quantization: Quantization, kernel_cache: Path, kernels: NamedKernels
) -> None:
    """Linears of more inputs than several tiles of rows read at once; of bfloat16, the last block is half a one."""
    wide = {"intermediate_size": 1136 if quantization == "none" else 1120}
    model = tiny_model("llama", torch.bfloat16, **SIZES, **wide)
    if quantization == "lossless":
        model = restored(model, "int4")
    ours = native(model, kernel_cache, quantization, kernels)
    expected = logits(ours, [1] * len(TOKENS))
    for cuts in CUTS:
        assert torch.equal(logits(ours, cuts), expected), cuts


@pytest.mark.parametrize(
    ("march", "quantizations"),
    [("x86-64-v4", ["lossless", "int8"]), ("x86-64-v3", ["lossless", "int8", "int4"]), ("", ["lossless", "int4"])],
)
def test_with_shorter_registers_as_well(
    march: str,
    quantizations: list[Quantization],
    kernel_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 64 bytes, without bfloat16 or integer products, of 32 bytes and of 16."""
    if march and (platform.machine() != "x86_64" or not runs_here(march)):
        pytest.skip(f"this processor does not run code for {march}")
    flags = [flag for flag in FLAGS if flag != "-march=native"] + ["-O1", "-Wno-psabi"]
    for quantization in quantizations:
        model = restored(tiny("llama"), "int4" if quantization == "lossless" else quantization)
        own = logits(native(model, kernel_cache, quantization), CUTS[0])
        with monkeypatch.context() as patched:
            patched.setattr(build, "FLAGS", (*flags, f"-march={march}") if march else tuple(flags))
            found = logits(native(model, tmp_path, quantization), CUTS[0])
            assert (found - own).norm() / own.norm() < 0.02
            if quantization == "lossless":
                assert torch.equal(found, logits(native(model, tmp_path), CUTS[0]))
            for cuts in CUTS:
                assert torch.equal(logits(native(model, tmp_path, quantization), cuts), found), cuts


def runs_here(march: str) -> bool:
    """Whether this processor has what a variant needs."""
    needs = {variant.name: variant.needs for variant in VARIANTS}
    return march not in needs or needs[march] <= set(CPUINFO.read_text(encoding="utf-8").split())


def test_quads_of_bytes_have_the_sums_of_shorts(kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX-VNNI's products, beside those of processors that have AVX2 alone."""
    of_avx2 = {variant.name: variant for variant in variants_here("avx2")}
    if "x86-64-v3-vnni" not in of_avx2:
        pytest.skip("this processor has no AVX-VNNI")
    quantizations: list[Quantization] = ["int8", "int4"]
    for quantization in quantizations:
        found = logits(native(tiny("llama"), kernel_cache, quantization, "avx2"), CUTS[0])
        with monkeypatch.context() as patched:
            patched.setattr(build, "VARIANTS", (of_avx2["x86-64-v3"],))
            plain = native(tiny("llama"), kernel_cache, quantization, "avx2")
            assert torch.equal(logits(plain, CUTS[0]), found)


def formats_of(decoder: NativeDecoder) -> set[str]:
    linears = [decoder.weights.model_struct.head]
    for layer in decoder.weights.layer_structs:
        linears += (layer.qkv, layer.output, layer.gate_up, layer.down)
    return {Format(weights.format).name for weights in linears}


def test_lossless_packs_nothing_that_does_not_fit(kernel_cache: Path) -> None:
    model = tiny("llama")
    ours, plain = native(model, kernel_cache, "lossless"), native(model, kernel_cache)
    assert torch.equal(logits(ours, CUTS[1]), logits(plain, CUTS[0]))
    assert formats_of(ours) == {"BFLOAT16"}
