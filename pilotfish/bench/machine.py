"""The machine that a measurement was taken on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

PACKAGES = ("pilotfish", "torch", "transformers", "grpcio", "ray")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Processor, memory and versions."""

    processor: str
    cores: int
    """Cores that this process may use."""
    memory_gib: float
    python: str
    packages: dict[str, str]


def this_machine() -> Machine:
    """This machine, as Linux reports it; elsewhere as far as Python knows."""
    models = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    totals = [line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return Machine(
        processor=models[0].partition(":")[2].strip() if models else platform.processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(int(totals[0].split()[1]) / 2**20, 1) if totals else 0.0,
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
