"""What the engines compute with: torch, its devices, and the compiler of the native CPU kernels."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pilotfish.cli.checks.finding import Finding, Severity
from pilotfish.cli.checks.probe import ask_process
from pilotfish.config import Config, CpuKernels
from pilotfish.errors import ConfigError
from pilotfish.models.native.build import CPUINFO, FLAGS, find_compiler, find_prebuilt, require_kernels, variants_here

COMPILE_TIMEOUT_S = 60.0
PROGRAM = "#include <thread>\n#include <vector>\nint pilotfish_probe() { return std::vector<int>(1).size(); }\n"
"""Needs the standard library's headers, which a compiler alone may not have."""

Probe = Callable[[Sequence[str]], dict[str, Any]]


def probe_torch(devices: Sequence[str]) -> dict[str, Any]:
    """What `torch_probe` says. Raises OSError, with torch's last words, if it says nothing."""
    return ask_process("pilotfish.cli.checks.torch_probe", devices)


def check_hardware(config: Config, probe: Probe = probe_torch) -> Iterator[Finding]:
    """Torch, GPUs, the configured devices and the compiler."""
    if find_spec("torch") is None:
        yield Finding("torch", Severity.OK, "not installed: this installation runs no model")
        return
    engines = {"target": config.target.engine, "draft": config.draft.engine}
    devices = sorted({engine.device for engine in engines.values()})
    try:
        found = probe(devices)
    except OSError as error:
        yield Finding("torch", Severity.PROBLEM, f"torch cannot be used: {error}", "install it again: `make setup`")
    else:
        yield Finding("torch", Severity.OK, f"torch {found['version']}")
        yield _gpus(found["gpus"], devices)
        for section, engine in engines.items():
            failure = found["failures"][engine.device]
            if failure:
                advice = f"choose another with --set {section}.engine.device=cpu, or mend the driver"
                yield Finding("device", Severity.PROBLEM, f"{section}.engine.device={engine.device}: {failure}", advice)
    for section, engine in engines.items():
        if engine.compile and engine.device in ("auto", "cpu"):
            yield check_kernels(section, engine.kernels)
    yield check_compiler(needed=any(engine.compile and engine.device in ("auto", "cpu") for engine in engines.values()))


def _gpus(gpus: list[dict[str, Any]], devices: list[str]) -> Finding:
    if gpus:
        names = ", ".join(f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB)" for gpu in gpus)
        unused = all(device == "cpu" for device in devices)
        advice = "the engines are set to the CPU; --set target.engine.device=cuda uses it" if unused else ""
        return Finding("gpu", Severity.WARNING if unused else Severity.OK, names, advice)
    if shutil.which("nvidia-smi"):
        advice = "see whether `nvidia-smi` works and whether torch was built for this driver's CUDA"
        return Finding("gpu", Severity.WARNING, "there is an NVIDIA driver, but torch sees no GPU", advice)
    return Finding("gpu", Severity.OK, "none: the engines compute on the CPU")


def check_kernels(section: str, kernels: CpuKernels, cpuinfo: Path = CPUINFO) -> Finding:
    """Whether this processor has the kernels that are configured, and which those are."""
    try:
        require_kernels(kernels, cpuinfo)
    except ConfigError as error:
        advice = f"--set {section}.engine.kernels=auto takes what the processor has"
        return Finding("kernels", Severity.PROBLEM, f"{section}.{error}", advice)
    names = [variant.name for variant in variants_here(kernels, cpuinfo)]
    return Finding("kernels", Severity.OK, f"{section}.engine.kernels={kernels}: {names[0] if names else 'portable'}")


def check_compiler(*, needed: bool) -> Finding:
    """Whether the native CPU kernels could be compiled: tries it with a small program."""
    compiler = find_compiler()
    if not needed:
        return Finding("compiler", Severity.OK, f"{compiler or 'none'}; nothing configured needs one")
    prebuilt = find_prebuilt()
    if compiler is None and prebuilt is not None:
        return Finding("compiler", Severity.OK, f"none, but the native CPU kernels are compiled ahead: {prebuilt.name}")
    if compiler is None:
        advice = "install g++ or clang++ (apt-get install g++): torch's own operations are slower"
        return Finding("compiler", Severity.WARNING, "no C++ compiler for the native CPU kernels", advice)
    with tempfile.TemporaryDirectory(prefix="pilotfish-doctor-") as folder:
        command = [compiler, *FLAGS, "-o", str(Path(folder) / "probe.so"), "-x", "c++", "-"]
        try:
            result = subprocess.run(
                command, input=PROGRAM, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        else:
            failure = "" if result.returncode == 0 else (result.stderr.strip().splitlines() or ["no message"])[0]
    if failure:
        advice = "the engines use torch's slower operations; install a C++17 compiler with its standard library"
        return Finding("compiler", Severity.WARNING, f"{compiler} cannot compile: {failure}", advice)
    return Finding("compiler", Severity.OK, f"{compiler} compiles C++17 for this processor")
