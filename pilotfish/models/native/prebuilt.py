"""Kernels compiled ahead of time, for images without a compiler: one library for each generation of x86-64.

`python -m pilotfish.models.native.prebuilt` in an image's build stage writes them into the environment's share/ folder.
Where a compiler is at hand, `build.py` compiles for the very processor instead.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from pilotfish.models.native.source import BUILD_TIMEOUT_S, PORTABLE_FLAGS, SOURCE, find_compiler, source_digest

FOLDER = Path(sysconfig.get_path("data")) / "share" / "pilotfish" / "kernels"
CPUINFO = Path("/proc/cpuinfo")
STATIC_FLAGS = ("-static-libstdc++", "-static-libgcc")
"""The build stage's C++ library need not be the one of the image that runs."""
QUIET_FLAGS = ("-Wno-psabi",)
"""Vectors wider than the processor's registers are passed within the library only."""


@dataclass(frozen=True)
class Variant:
    """One generation of processors."""

    name: str
    flags: tuple[str, ...]
    """For the compiler."""
    needs: frozenset[str]
    """Of /proc/cpuinfo; the kernels use none beyond these."""

    def library(self, folder: Path) -> Path:
        """Where it lies; another release's sources have another name."""
        return folder / f"kernels-{self.name}-{source_digest()}.so"


_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
VARIANTS = (
    Variant("x86-64-v4-bf16", ("-march=x86-64-v4", "-mavx512bf16"), _V4 | {"avx512_bf16"}),
    Variant("x86-64-v4", ("-march=x86-64-v4",), _V4),
    Variant("x86-64-v3", ("-march=x86-64-v3",), _V3),
)
"""Fastest first."""


def find_prebuilt(folder: Path = FOLDER, cpuinfo: Path = CPUINFO) -> Path | None:
    """The best library for this processor; None: there is none."""
    features = _features(cpuinfo)
    libraries = (variant.library(folder) for variant in VARIANTS if variant.needs <= features)
    return next((library for library in libraries if library.is_file()), None)


def prebuild(folder: Path = FOLDER) -> list[Path]:
    """Compile every variant. Raises OSError without a compiler, CalledProcessError when it fails."""
    compiler = find_compiler()
    if compiler is None:
        raise FileNotFoundError("no C++ compiler found")
    folder.mkdir(parents=True, exist_ok=True)
    libraries = []
    for variant in VARIANTS:
        library = variant.library(folder)
        command = [compiler, *PORTABLE_FLAGS, *variant.flags, *STATIC_FLAGS, *QUIET_FLAGS]
        subprocess.run([*command, "-o", str(library), str(SOURCE)], timeout=BUILD_TIMEOUT_S, check=True)
        libraries.append(library)
    return libraries


def _features(cpuinfo: Path) -> frozenset[str]:
    """What the first core can do; cores of one machine are alike."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


if __name__ == "__main__":
    for path in prebuild(*map(Path, sys.argv[1:2])):
        print(path)
