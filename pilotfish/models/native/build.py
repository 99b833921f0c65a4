"""Compiles kernels.cpp and its headers for this machine, once, into the cache folder.

One call of the system's C++ compiler (a few seconds); the result is keyed by source, flags, compiler and
processor, so that a cache folder shared by unlike machines never mixes them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from pilotfish.models.native.prebuilt import find_prebuilt
from pilotfish.models.native.source import BUILD_TIMEOUT_S, COMPILERS, FLAGS, SOURCE, find_compiler, source_digest

logger = logging.getLogger(__name__)

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES = (
    ("create", [_POINTER, ctypes.c_int], _POINTER),
    ("destroy", [_POINTER], None),
    ("set_pools", [_POINTER, _POINTER, _POINTER], None),
    ("move_kv", [_POINTER, _POINTER, _SIZE], None),
    ("forward", [_POINTER, _POINTER], None),
    ("create_head", [_POINTER, _POINTER], _POINTER),
    ("destroy_head", [_POINTER], None),
    ("set_head_pool", [_POINTER, _POINTER, _POINTER], None),
    ("forward_head", [_POINTER, _POINTER], None),
)
"""See kernels.cpp."""


class NativeKernelsUnavailableError(Exception):
    """No compiler, or it failed; the caller falls back to torch and says why."""


def find_kernels(cache_dir: Path) -> Path:
    """Path of the shared library: compiled here, else compiled ahead. Raises NativeKernelsUnavailableError."""
    try:
        return build_kernels(cache_dir)
    except NativeKernelsUnavailableError as error:
        library = find_prebuilt()
        if library is None:
            raise
        logger.info("kernels compiled ahead, %s: %s", library.name, error)
        return library


def build_kernels(cache_dir: Path) -> Path:
    """Path of the shared library, compiled if need be. Raises NativeKernelsUnavailableError."""
    compiler = find_compiler()
    if compiler is None:
        raise NativeKernelsUnavailableError(f"no C++ compiler found (tried {', '.join(COMPILERS)})")
    folder = cache_dir / "native"
    try:
        library = folder / f"kernels-{_key(compiler)}.so"
        if library.exists():
            return library
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / library.name
            command = [compiler, *FLAGS, "-o", str(built), str(SOURCE)]
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
        function.argtypes, function.restype = arguments, result
    return kernels


def _key(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    return source_digest(" ".join(FLAGS).encode(), version.encode(), _processor().encode())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() + platform.machine() + str(os.cpu_count())
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
