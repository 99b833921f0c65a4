"""What the kernels are compiled from, and with what."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.cpp")
_LANGUAGE_FLAGS = ("-std=c++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=fast")
FLAGS = ("-O3", "-march=native", *_LANGUAGE_FLAGS)
PORTABLE_FLAGS = ("-O3", *_LANGUAGE_FLAGS)
"""All but the processor's."""
COMPILERS = ("c++", "g++", "clang++")
BUILD_TIMEOUT_S = 300


def find_compiler() -> str | None:
    """Path of the system's C++ compiler; None: there is none."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def source_digest(*more: bytes) -> str:
    """Of the sources, and of what else decides the result."""
    digest = hashlib.sha256()
    for part in (*(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h")))), *more):
        digest.update(part + b"\0")
    return digest.hexdigest()[:24]
