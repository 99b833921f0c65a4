"""What the engines compute with. Torch is asked by the end-to-end test of the command; here a stand-in answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.checks.hardware import check_compiler, check_hardware, check_kernels
from pilotfish.config import load_config
from pilotfish.models.native.build import VARIANTS

GPU = {"name": "H100", "memory_bytes": 80 * 2**30}
ON_GPU = ["target.engine.device=cuda", "target.engine.compile=false"]


def findings(gpus: list[dict[str, Any]], failures: dict[str, str], *overrides: str) -> dict[str, CheckFinding]:
    def probe(devices: Sequence[str]) -> dict[str, Any]:
        return {"version": "2", "gpus": gpus, "failures": {device: failures.get(device, "") for device in devices}}

    return {finding.check: finding for finding in check_hardware(load_config(overrides=overrides), probe)}


def test_a_gpu_that_nothing_uses_is_pointed_out() -> None:
    gpu = findings([GPU], {})["gpu"]
    assert gpu.verdict is Severity.WARNING
    assert "--set target.engine.device=cuda" in gpu.advice


def test_a_configured_device_that_fails_is_a_problem() -> None:
    device = findings([], {"cuda": "no driver"}, *ON_GPU)["device"]
    assert device.verdict is Severity.PROBLEM
    assert device.found == "target.engine.device=cuda: no driver"


def test_a_torch_that_does_not_start_is_a_problem_and_the_rest_goes_on() -> None:
    def probe(_: Sequence[str]) -> dict[str, Any]:
        raise OSError("Illegal instruction")

    found = {finding.check: finding for finding in check_hardware(load_config(), probe)}
    assert found["torch"].verdict is Severity.PROBLEM
    assert "Illegal instruction" in found["torch"].found
    assert "compiler" in found


def test_kernels_that_the_processor_lacks_are_a_problem(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : {' '.join(VARIANTS[-1].needs)}\n")
    assert check_kernels("target", "auto", cpuinfo) == CheckFinding(
        "kernels", Severity.OK, "target.engine.kernels=auto: x86-64-v3"
    )
    finding = check_kernels("draft", "avx512", cpuinfo)
    assert finding.verdict is Severity.PROBLEM
    assert "--set draft.engine.kernels=auto" in finding.advice


def test_tiles_need_the_systems_permission(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : {' '.join(VARIANTS[0].needs)}\n")
    granted = check_kernels("target", "auto", cpuinfo, lambda: "")
    assert (granted.verdict, granted.found) == (
        Severity.OK,
        "target.engine.kernels=auto: x86-64-v4-bf16-amx, if its tiles pass the trial of a first start",
    )
    for kernels, verdict in (("auto", Severity.WARNING), ("amx", Severity.PROBLEM), ("avx512", Severity.OK)):
        finding = check_kernels("draft", kernels, cpuinfo, lambda: "Linux refuses them")
        assert finding.verdict is verdict
        assert ("Linux refuses them" in finding.found) == (verdict is not Severity.OK)
        assert ("--set draft.engine.kernels=avx512" in finding.advice) == (verdict is not Severity.OK)


def test_a_gpus_kernels_need_a_c_compiler_and_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    found = findings([GPU], {}, *ON_GPU)["gpu compiler"]
    assert (found.verdict, found.found[:13]) == (Severity.WARNING, "no C compiler")
    (tmp_path / "gcc").touch(mode=0o755)
    assert "Python.h" in findings([GPU], {}, *ON_GPU)["gpu compiler"].found
    (tmp_path / "Python.h").touch()
    assert findings([GPU], {}, *ON_GPU)["gpu compiler"].verdict is Severity.OK
    assert "gpu compiler" not in findings([GPU], {})


@pytest.mark.parametrize(
    ("script", "expected"), [("exit 0", ""), ("echo 'thread: No such file' >&2; exit 1", "cannot compile: thread")]
)
def test_the_compiler_is_tried(script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    finding = check_compiler(needed=True)
    assert finding.verdict is (Severity.WARNING if expected else Severity.OK)
    assert expected in finding.found
