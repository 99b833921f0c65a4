"""What the targets of a pool must agree on."""

from dataclasses import replace
from pathlib import Path

import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.process.precision import precision_of
from pilotfish.models.native.decoder import NativeDecoder
from tests.support.native_kernels import EMULATED_TILES, KERNELS_HERE, NamedKernels, compiled_for
from tests.support.tiny_models import tiny_model
from tests.unit.pilotfish.models.conftest import kernel_cache

__all__ = ["kernel_cache"]
ENGINE = EngineConfig()


def decoder(kernels: NamedKernels, cache: Path) -> NativeDecoder:
    model = tiny_model("llama", torch.bfloat16)
    with compiled_for(kernels) as named:
        return NativeDecoder(model, max_context_tokens=64, num_threads=1, cache_dir=cache, kernels=named)


def test_tiles_sum_otherwise_unless_inputs_are_rounded(kernel_cache: Path) -> None:
    kinds = [kernels for kernels in KERNELS_HERE if kernels not in ("auto", "amx", EMULATED_TILES)]
    vectors = [decoder(kernels, kernel_cache) for kernels in kinds]
    tiles = [decoder(kernels, kernel_cache) for kernels in KERNELS_HERE if kernels in ("amx", EMULATED_TILES)]
    for quantization in ("none", "lossless"):
        engine = replace(ENGINE, quantization=quantization)
        assert {precision_of(engine, each) for each in vectors} <= {"bfloat16"}
        assert {precision_of(engine, each) for each in tiles} <= {"bfloat16, engine.kernels: amx"}
    rounded = replace(ENGINE, quantization="int8")
    assert len({precision_of(rounded, each) for each in (*vectors, *tiles)}) == 1
