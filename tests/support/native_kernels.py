"""The native kernels that this machine can run."""

from pilotfish.config import CpuKernels
from pilotfish.models.native.build import variants_here

KERNELS_HERE: tuple[CpuKernels, ...] = ("auto", *sorted({variant.kernels for variant in variants_here()}))
"""Values of engine.kernels."""
