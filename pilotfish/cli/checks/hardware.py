"""What the engines compute with: torch, its devices, and the compilers of their kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.checks.probe import ask_process
from pilotfish.config import Config, CpuKernels
from pilotfish.errors import ConfigError
from pilotfish.models.native.amx import request_tiles
from pilotfish.models.native.build import CPUINFO, FLAGS, find_compiler, find_prebuilt, require_kernels, variants_here

COMPILE_TIMEOUT_S = 60.0
PROGRAM = "#include <thread>\n#include <vector>\nint pilotfish_probe() { return std::vector<int>(1).size(); }\n"
"""Needs the standard library's headers, which a compiler alone may not have."""

Probe = Callable[[Sequence[str]], dict[str, Any]]


def probe_torch(devices: Sequence[str]) -> dict[str, Any]:
    """What `torch_probe` says. Raises OSError, with torch's last words, if it says nothing."""
    return ask_process("pilotfish.cli.checks.torch_probe", devices)


def check_hardware(config: Config, probe: Probe = probe_torch) -> Iterator[CheckFinding]:
    """Torch, GPUs, the configured devices and the compilers."""
    if find_spec("torch") is None:
        yield CheckFinding("torch", Severity.OK, "not installed: this installation runs no model")
        return
    engines = {"target": config.target.engine, "draft": config.draft.engine}
    devices = sorted({engine.device for engine in engines.values()})
    try:
        found = probe(devices)
    except OSError as error:
        yield CheckFinding(
            "torch", Severity.PROBLEM, f"torch cannot be used: {error}", "install it again: `make setup`"
        )
    else:
        yield CheckFinding("torch", Severity.OK, f"torch {found['version']}")
        yield _gpus(found["gpus"], devices)
        for section, engine in engines.items():
            failure = found["failures"][engine.device]
            if failure:
                advice = f"choose another with --set {section}.engine.device=cpu, or mend the driver"
                yield CheckFinding(
                    "device", Severity.PROBLEM, f"{section}.engine.device={engine.device}: {failure}", advice
                )
    for section, engine in engines.items():
        if engine.compile and engine.device in ("auto", "cpu"):
            yield check_kernels(section, engine.kernels)
    yield check_compiler(needed=any(engine.compile and engine.device in ("auto", "cpu") for engine in engines.values()))
    if any(device.startswith("cuda") for device in devices):
        yield check_gpu_compiler()


def _gpus(gpus: list[dict[str, Any]], devices: list[str]) -> CheckFinding:
    if gpus:
        names = ", ".join(f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB)" for gpu in gpus)
        unused = all(device == "cpu" for device in devices)
        advice = "the engines are set to the CPU; --set target.engine.device=cuda uses it" if unused else ""
        return CheckFinding("gpu", Severity.WARNING if unused else Severity.OK, names, advice)
    if shutil.which("nvidia-smi"):
        advice = "see whether `nvidia-smi` works and whether torch was built for this driver's CUDA"
        return CheckFinding("gpu", Severity.WARNING, "there is an NVIDIA driver, but torch sees no GPU", advice)
    return CheckFinding("gpu", Severity.OK, "none: the engines compute on the CPU")


def check_kernels(
    section: str, kernels: CpuKernels, cpuinfo: Path = CPUINFO, refusal: Callable[[], str] = request_tiles
) -> CheckFinding:
    """Whether this processor has the kernels that are configured, and which those are; whether AMX tiles give what they
    should is only known once a start has tried them."""
    try:
        require_kernels(kernels, cpuinfo)
    except ConfigError as error:
        advice = f"--set {section}.engine.kernels=auto takes what the processor has"
        return CheckFinding("kernels", Severity.PROBLEM, f"{section}.{error}", advice)
    variants = variants_here(kernels, cpuinfo)
    found = f"{section}.engine.kernels={kernels}: {variants[0].name if variants else 'portable'}"
    if not variants or variants[0].kernels != "amx":
        return CheckFinding("kernels", Severity.OK, found)
    if fault := refusal():
        severity = Severity.PROBLEM if kernels == "amx" else Severity.WARNING
        advice = f"--set {section}.engine.kernels=avx512 does without AMX tiles"
        return CheckFinding("kernels", severity, f"{found}, but its tiles cannot be used: {fault}", advice)
    return CheckFinding("kernels", Severity.OK, f"{found}, if its tiles pass the trial of a first start")


def check_gpu_compiler() -> CheckFinding:
    """Whether Triton and torch.compile find what they make a GPU's kernels with: a C compiler and Python's headers."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if compiler and header.is_file():
        return CheckFinding("gpu compiler", Severity.OK, f"{compiler}, {header}")
    missing = f"no {header}" if compiler else "no C compiler"
    advice = "apt-get install gcc libc6-dev libpython3-dev: without, steps run without CUDA graphs (docs/gpu.md)"
    return CheckFinding("gpu compiler", Severity.WARNING, f"{missing} for Triton and torch.compile", advice)


def check_compiler(*, needed: bool) -> CheckFinding:
    """Whether the native CPU kernels could be compiled: tries it with a small program."""
    compiler = find_compiler()
    if not needed:
        return CheckFinding(
            "compiler", Severity.OK, f"{compiler or 'none'}; nothing configured compiles kernels for the CPU"
        )
    prebuilt = find_prebuilt()
    if compiler is None and prebuilt is not None:
        return CheckFinding(
            "compiler", Severity.OK, f"none, but the native CPU kernels are compiled ahead: {prebuilt.name}"
        )
    if compiler is None:
        advice = "install g++ or clang++ (apt-get install g++): torch's own operations are slower"
        return CheckFinding("compiler", Severity.WARNING, "no C++ compiler for the native CPU kernels", advice)
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
        return CheckFinding("compiler", Severity.WARNING, f"{compiler} cannot compile: {failure}", advice)
    return CheckFinding("compiler", Severity.OK, f"{compiler} compiles C++17 for this processor")
