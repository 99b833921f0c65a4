"""`pilotfish doctor`: findings for people and for programs, and the exit code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pilotfish.cli.checks import torch_probe
from pilotfish.cli.checks.hardware import probe_torch
from pilotfish.cli.main import app

runner = CliRunner()
QUIET = ["--set", "orchestrator.port=0", "--set", "emulation.profile=instant"]
"""No port and no model of this machine matters."""


@pytest.fixture(autouse=True)
def few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch, which this process has, is not started again for each test."""
    monkeypatch.setattr("pilotfish.cli.checks.hardware.check_hardware.__defaults__", (torch_probe.probe,))


def test_json_has_every_finding_and_the_verdict(tmp_path: Path) -> None:
    result = runner.invoke(app, ["doctor", "--json", *QUIET, "--set", f"cache_dir={tmp_path}"])
    report = json.loads(result.stdout)
    assert result.exit_code == (1 if report["verdict"] == "problem" else 0)
    checks = {finding["check"]: finding for finding in report["findings"]}
    names = {"python", "configuration", "torch", "gpu", "compiler", "model cache", "address", "proxies"}
    assert names <= set(checks)
    assert set(checks["python"]) == {"check", "verdict", "found", "advice"}


def test_a_problem_is_exit_code_1_and_the_rest_is_still_checked() -> None:
    result = runner.invoke(app, ["doctor", "--set", "target.prot=1"])
    assert result.exit_code == 1
    assert "✗ configuration" in result.stdout
    assert "→" in result.stdout
    assert "model cache" in result.stdout
    assert "see the problems" in result.stdout


def test_torch_is_asked_in_a_process_of_its_own() -> None:
    found = probe_torch(["cpu", "nonsense"])
    assert found["failures"]["cpu"] == ""
    assert "nonsense" in found["failures"]["nonsense"]
