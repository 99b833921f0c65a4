"""AMX tiles: emulated anywhere, and the processor's beside them where it has some. Tests of all kernels run on them as
well (test_decoders.py, test_quantised_decoder.py, test_tree_decoding.py)."""

import copy
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pilotfish.models.determinism import blocks_needed
from pilotfish.models.native.amx import tiles_fault
from pilotfish.models.native.build import build_kernels, variants_here
from pilotfish.models.native.decoder import NativeDecoder
from tests.support.native_kernels import (
    EMULATED_TILES,
    KERNELS_HERE,
    NamedKernels,
    built_program,
    compiled_for,
    logits_in_steps,
)
from tests.support.tiny_models import tiny_model

VOCAB = 96
TOKENS = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(1)).tolist()
needs_emulation = pytest.mark.skipif(EMULATED_TILES not in KERNELS_HERE, reason="no AVX2")
needs_tiles = pytest.mark.skipif(not variants_here("amx"), reason="no AMX")


def logits(kernels: NamedKernels, cache: Path, cuts: list[int], num_threads: int) -> Tensor:
    """[60, V] of one text, in steps of these sizes."""
    # Of 1,136 inputs the last block is half a one.
    model = tiny_model("qwen2", torch.bfloat16, num_hidden_layers=2, intermediate_size=1136, vocab_size=VOCAB)
    with compiled_for(kernels) as named:
        decoder = NativeDecoder(
            copy.deepcopy(model),
            max_context_tokens=64,
            num_threads=num_threads,
            cache_dir=cache,
            kernels=named,
        )
    decoder.allocate(blocks_needed())
    return logits_in_steps(decoder, TOKENS, cuts)


@needs_emulation
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_row_has_the_same_bits_in_a_step_of_any_size(num_threads: int, kernel_cache: Path) -> None:
    expected = logits(EMULATED_TILES, kernel_cache, [1] * 60, 1)
    for size in (2, 3, 4, 8, 15, 16, 17, 24, 31, 32, 33, 40, 48, 49, 60):
        found = logits(EMULATED_TILES, kernel_cache, [size, *[1] * (60 - size)], num_threads)
        assert torch.equal(found, expected), size


@needs_emulation
def test_they_sum_in_an_order_of_their_own(kernel_cache: Path) -> None:
    ours = logits(EMULATED_TILES, kernel_cache, [60], 2)
    theirs = logits("avx512" if "avx512" in KERNELS_HERE else "avx2", kernel_cache, [60], 2)
    assert not torch.equal(ours, theirs)
    assert (ours - theirs).norm() / theirs.norm() < 0.02


@needs_emulation
def test_the_check_finds_faults_and_sums_are_as_near_as_measured(tmp_path: Path) -> None:
    source = Path(__file__).with_name("linear_tiles.cpp")
    program = built_program(source, tmp_path, "-O2", "-w", "-march=native", "-ffp-contract=fast", "-DPILOTFISH_TILES=2")
    lines = subprocess.run([program], check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    found = {name: float(number) for name, _, number in (line.rpartition(" ") for line in lines)}
    assert found["right"] == 0
    assert found["stale"] > 1000
    assert found["rounded otherwise"] > 1000
    assert found["error 576"] < 1.5e-6
    assert found["error 1536"] < 2.5e-6


@needs_tiles
def test_the_processors_tiles_give_the_bits_of_the_emulation(kernel_cache: Path, tmp_path: Path) -> None:
    assert not tiles_fault(build_kernels(kernel_cache, "amx"), tmp_path / "record")
    expected = logits(EMULATED_TILES, kernel_cache, [60], 2)
    assert torch.equal(logits("amx", kernel_cache, [60], 2), expected)
    assert torch.equal(logits("amx", kernel_cache, [1, 2, 17, 40], 2), expected)
