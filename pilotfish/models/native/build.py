"""Compiles kernels.cpp and its headers: for this machine, once, into the cache folder; or ahead of time, for images
without a compiler, one library for each generation of x86-64.

One call of the system's C++ compiler (a few seconds). What is compiled here is keyed by source, flags, compiler and
processor, so that a cache folder shared by unlike machines never mixes them. `python -m pilotfish.models.native.build`
in an image's build stage compiles ahead, into the environment's share/ folder.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pilotfish.config import CpuKernels
from pilotfish.errors import ConfigError
from pilotfish.models.native.amx import tiles_fault

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.cpp")
COMPILERS = ("c++", "g++", "clang++")
BUILD_TIMEOUT_S = 300
PORTABLE_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=fast")
"""All but the processor's."""
FLAGS = (*PORTABLE_FLAGS, "-march=native")
STATIC_FLAGS = ("-static-libstdc++", "-static-libgcc")
"""The build stage's C++ library need not be the one of the image that runs."""
QUIET_FLAGS = ("-Wno-psabi",)
"""Vectors wider than the processor's registers are passed within the library only."""
PREBUILT = Path(sysconfig.get_path("data")) / "share" / "pilotfish" / "kernels"
CPUINFO = Path("/proc/cpuinfo")

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: tuple[tuple[str, list[type], type | None], ...] = (
    ("uses_tiles", [], ctypes.c_int),
    ("create", [_POINTER, ctypes.c_int], _POINTER),
    ("destroy", [_POINTER], None),
    ("set_pools", [_POINTER, _POINTER, _POINTER], None),
    ("move_kv", [_POINTER, _POINTER, _SIZE], None),
    ("forward", [_POINTER, _POINTER], None),
    ("create_head", [_POINTER, _POINTER], _POINTER),
    ("destroy_head", [_POINTER], None),
    ("set_head_pool", [_POINTER, _POINTER, _POINTER], None),
    ("forward_head", [_POINTER, _POINTER], None),
    ("create_exit", [_POINTER, _POINTER], _POINTER),
    ("destroy_exit", [_POINTER], None),
    ("set_exit_pool", [_POINTER, _POINTER, _POINTER], None),
    ("forward_exit", [_POINTER, _POINTER, _POINTER], None),
)
"""See kernels.cpp."""


class NativeKernelsUnavailableError(Exception):
    """No compiler, or it failed; the caller falls back to torch and says why."""


@dataclass(frozen=True)
class KernelVariant:
    """One generation of processors."""

    name: str
    kernels: CpuKernels
    """What it is in the configuration."""
    flags: tuple[str, ...]
    """Flags for the compiler."""
    needs: frozenset[str]
    """Flags of /proc/cpuinfo that the kernels need; they use none beyond these."""

    def library(self, folder: Path) -> Path:
        """Where it lies; another release's sources have another name."""
        return folder / f"kernels-{self.name}-{source_digest()}.so"


_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_V4_BF16 = _V4 | {"avx512_bf16", "avx512_vnni"}
_AMX_FLAGS = ("-mamx-tile", "-mamx-bf16", "-DPILOTFISH_TILES=1")
VARIANTS = (
    KernelVariant(
        "x86-64-v4-bf16-amx",
        "amx",
        ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni", *_AMX_FLAGS),
        _V4_BF16 | {"amx_tile", "amx_bf16"},
    ),
    KernelVariant("x86-64-v4-bf16", "avx512", ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni"), _V4_BF16),
    KernelVariant("x86-64-v4", "avx512", ("-march=x86-64-v4",), _V4),
    KernelVariant("x86-64-v3-vnni", "avx2", ("-march=x86-64-v3", "-mavxvnni"), _V3 | {"avx_vnni"}),
    KernelVariant("x86-64-v3", "avx2", ("-march=x86-64-v3",), _V3),
)
"""Fastest first."""


def find_kernels(cache_dir: Path, kernels: CpuKernels = "auto") -> Path:
    """Path of the shared library: compiled here, else compiled ahead. Raises NativeKernelsUnavailableError, and
    ConfigError if the processor lacks what the configuration names."""
    require_kernels(kernels)
    return _find_tiles(cache_dir, kernels) or _find_library(cache_dir, kernels)


@functools.cache  # one trial and one warning, however many decoders a process builds
def _find_tiles(cache_dir: Path, kernels: CpuKernels) -> Path | None:
    """The library that uses AMX tiles; None: they are not wanted, or `auto` does without. Raises ConfigError for tiles
    that are named and cannot be used."""
    if kernels not in ("auto", "amx") or not variants_here("amx"):
        return None
    try:
        library = _find_library(cache_dir, "amx")
        processor = hashlib.sha256(_processor().encode()).hexdigest()[:8]
        fault = tiles_fault(library, cache_dir / "native" / f"{library.stem}-{processor}.tiles")
        if not fault:
            return library
    except NativeKernelsUnavailableError as error:
        fault = str(error)
    if kernels == "amx":
        raise ConfigError(f"engine.kernels is amx, whose tiles cannot be used: {fault}. Set it to avx512")
    logger.warning("AMX tiles are not used: %s. With engine.kernels: avx512 they are not tried", fault)
    return None


def _find_library(cache_dir: Path, kernels: CpuKernels) -> Path:
    try:
        return build_kernels(cache_dir, kernels)
    except NativeKernelsUnavailableError as error:
        library = find_prebuilt(kernels=kernels)
        if library is None:
            raise
        logger.info("kernels compiled ahead, %s: %s", library.name, error)
        return library


def variants_here(kernels: CpuKernels = "auto", cpuinfo: Path = CPUINFO) -> list[KernelVariant]:
    """The variants that this processor runs, fastest first; only those of one kind unless that is `auto`."""
    # Cores of one machine are alike.
    features = {feature for line in _cpuinfo(cpuinfo, "flags")[:1] for feature in line.partition(":")[2].split()}
    return [variant for variant in VARIANTS if variant.needs <= features and kernels in ("auto", variant.kernels)]


def require_kernels(kernels: CpuKernels, cpuinfo: Path = CPUINFO) -> None:
    """Raises ConfigError if this processor lacks what the configuration names."""
    if kernels != "auto" and not variants_here(kernels, cpuinfo):
        raise ConfigError(f"engine.kernels is {kernels}, which this processor does not have: set it to auto")


def compiler_flags(kernels: CpuKernels) -> tuple[str, ...]:
    """Flags for the kernels on this processor, which must have them; `auto` is all but tiles (see find_kernels)."""
    return FLAGS if kernels == "auto" else (*PORTABLE_FLAGS, *variants_here(kernels)[0].flags, *QUIET_FLAGS)


def build_kernels(cache_dir: Path, kernels: CpuKernels = "auto") -> Path:
    """Path of the shared library, compiled if need be. Raises NativeKernelsUnavailableError."""
    flags = compiler_flags(kernels)
    if (compiler := find_compiler()) is None:
        raise NativeKernelsUnavailableError(f"no C++ compiler found (tried {', '.join(COMPILERS)})")
    folder = cache_dir / "native"
    try:
        library = folder / f"kernels-{_key(compiler, flags)}.so"
        if library.exists():
            return library
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / library.name
            command = [compiler, *flags, "-o", str(built), str(SOURCE)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
            if result.returncode != 0:
                raise NativeKernelsUnavailableError(f"{compiler} failed: {result.stderr.strip()[:500]}")
            built.replace(library)  # atomic: two builders at once leave one whole file
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeKernelsUnavailableError(f"cannot build into {folder}: {error}") from error
    return library


def load_kernels(library: Path) -> ctypes.CDLL:
    """The library with argument types set. Raises NativeKernelsUnavailableError if it cannot be loaded."""
    try:
        kernels = ctypes.CDLL(str(library))
    except OSError as error:
        raise NativeKernelsUnavailableError(f"cannot load {library}: {error}") from error
    for name, arguments, result in _SIGNATURES:
        function = getattr(kernels, f"pilotfish_{name}")
        function.argtypes = arguments
        function.restype = result
    return kernels


def _key(compiler: str, flags: tuple[str, ...]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    return source_digest(" ".join(flags).encode(), version.encode(), _processor().encode())


def _processor() -> str:
    about = _cpuinfo(CPUINFO, "flags", "Features", "model name")
    return "".join(about) if about else platform.processor() + platform.machine() + str(os.cpu_count())


def _cpuinfo(path: Path, *names: str) -> list[str]:
    """Lines of the file that begin with one of the names, each once; none where it cannot be read."""
    try:
        return sorted({line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(names)})
    except OSError:
        return []


def find_prebuilt(folder: Path = PREBUILT, cpuinfo: Path = CPUINFO, kernels: CpuKernels = "auto") -> Path | None:
    """The best library compiled ahead for this processor, of `auto` without tiles (see find_kernels); None: there is
    none."""
    variants = (variant for variant in variants_here(kernels, cpuinfo) if variant.kernels != "amx" or kernels == "amx")
    return next((library for variant in variants if (library := variant.library(folder)).is_file()), None)


def prebuild(folder: Path = PREBUILT) -> list[Path]:
    """Compile every variant. Raises OSError without a compiler, CalledProcessError when it fails."""
    if (compiler := find_compiler()) is None:
        raise FileNotFoundError("no C++ compiler found")
    folder.mkdir(parents=True, exist_ok=True)
    for variant in VARIANTS:
        command = [compiler, *PORTABLE_FLAGS, *variant.flags, *STATIC_FLAGS, *QUIET_FLAGS]
        command += ["-o", str(variant.library(folder)), str(SOURCE)]
        subprocess.run(command, timeout=BUILD_TIMEOUT_S, check=True)
    return [variant.library(folder) for variant in VARIANTS]


def find_compiler() -> str | None:
    """Path of the system's C++ compiler; None: there is none."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def source_digest(*more: bytes) -> str:
    """Digest of the sources, and of what else decides the result."""
    digest = hashlib.sha256()
    for part in (*(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h")))), *more):
        digest.update(part + b"\0")
    return digest.hexdigest()[:24]


if __name__ == "__main__":
    for path in prebuild(*map(Path, sys.argv[1:2])):
        print(path)
