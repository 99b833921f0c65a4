"""The native kernels that this machine can run, and those with emulated tiles."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor

from pilotfish.config import CpuKernels
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.native import build
from pilotfish.models.native.build import SOURCE, find_compiler, variants_here

NamedKernels = Literal["auto", "amx", "avx512", "avx2", "emulated tiles"]
EMULATED_TILES: Literal["emulated tiles"] = "emulated tiles"
_VECTORS: list[CpuKernels] = [variant.kernels for variant in variants_here() if variant.kernels != "amx"]

KERNELS_HERE: tuple[NamedKernels, ...] = (
    "auto",
    *sorted({variant.kernels for variant in variants_here()}),
    *((EMULATED_TILES,) if _VECTORS else ()),
)
"""Values of engine.kernels, and what stands in for `amx` anywhere."""


@contextmanager
def compiled_for(kernels: NamedKernels) -> Iterator[CpuKernels]:
    """engine.kernels of the decoders that are built inside."""
    if kernels != EMULATED_TILES:
        yield kernels
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "PORTABLE_FLAGS", (*build.PORTABLE_FLAGS, "-DPILOTFISH_TILES=2"))
        yield _VECTORS[0]


def logits_in_steps(decoder: Decoder, token_ids: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """[rows, V] of one text, in steps of these sizes."""
    parts, start = [], 0
    for size in sizes:
        rows = range(start, start + size)
        text = SequenceSlice(0, size, start, [7, 3, 5, 9])
        parts.append(decoder.forward(StepInput(token_ids[start : start + size], rows, [text], range(size))).clone())
        start += size
    return torch.cat(parts)


def built_program(source: Path, folder: Path, *flags: str) -> Path:
    """A program that uses the kernels' headers."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / source.stem
    command = [compiler, "-std=c++17", "-pthread", *flags, f"-I{SOURCE.parent}", "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    return program
