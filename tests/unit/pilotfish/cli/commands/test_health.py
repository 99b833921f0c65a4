"""`pilotfish health`: exit codes, output, and whom a role means."""

import json
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from pilotfish.cli.main import app

runner = CliRunner()


def test_an_address_that_serves(address: str) -> None:
    result = runner.invoke(app, ["health", address])
    assert (result.exit_code, result.stdout) == (0, f"{address} readiness: SERVING\n")


def test_json_and_another_name(address: str) -> None:
    result = runner.invoke(app, ["health", address, "--service", "nonsense", "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["address"], report["service"], report["status"]) == (address, "nonsense", "SERVICE_UNKNOWN")
    assert report["latency_ms"] > 0


def test_nobody_there() -> None:
    result = runner.invoke(app, ["health", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stdout.startswith("127.0.0.1:1 readiness: UNREACHABLE (UNAVAILABLE: ")


def test_a_role_is_where_the_configuration_says(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    port = address.rpartition(":")[2]
    settings = ["--set", f"orchestrator.port={port}", "--set", "orchestrator.host=0.0.0.0"]
    assert runner.invoke(app, ["health", "orchestrator", *settings]).exit_code == 0
    monkeypatch.setenv("PILOTFISH_ROLE", "orchestrator")
    assert runner.invoke(app, ["health", *settings]).stdout == f"127.0.0.1:{port} readiness: SERVING\n"


@pytest.mark.parametrize("where", ["oracle", "127.0.0.1", "127.0.0.1:99999"])
def test_neither_role_nor_address(where: str) -> None:
    result = runner.invoke(app, ["health", where])
    assert result.exit_code == 2
    assert "is not HOST:PORT" in result.stderr


def test_a_trainer_is_well_while_it_works_in_its_folder(tmp_path: Path) -> None:
    arguments = ["health", "trainer", "--set", f"draft.learning.folder={tmp_path}"]
    assert runner.invoke(app, arguments).exit_code == 1
    lock = tmp_path / "trainer.lock"
    with FileLock(lock):
        result = runner.invoke(app, arguments)
        assert (result.exit_code, result.stdout) == (0, f"{lock} trainer: SERVING\n")
    assert "NOT_SERVING" in runner.invoke(app, arguments).stdout
