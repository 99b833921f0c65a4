"""`pilotfish service` becomes the service's own process; that it stops on a signal: tests/image."""

import os
import sys

import pytest
from typer.testing import CliRunner

from pilotfish.cli.main import app

runner = CliRunner()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would have taken this process's place."""
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, _environment: commands.append(command))
    return commands


@pytest.mark.parametrize(
    ("role", "module"),
    [
        ("target", "target_service"),
        ("draft", "draft_service"),
        ("orchestrator", "orchestrator"),
        ("trainer", "pilotfish.training.online"),
    ],
)
def test_each_role_is_a_module(role: str, module: str, executed: list[list[str]]) -> None:
    arguments = ["service", role, "--config", "a.yaml", "--set", "log_level=ERROR", "--set", "target.port=1"]
    assert runner.invoke(app, arguments).exit_code == 0
    options = ["--config", "a.yaml", "--set", "log_level=ERROR", "--set", "target.port=1"]
    assert executed == [[sys.executable, "-m", module, *options]]


def test_the_environment_may_name_the_role(executed: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.invoke(app, ["service"]).exit_code == 2
    monkeypatch.setenv("PILOTFISH_ROLE", "draft")
    assert runner.invoke(app, ["service"]).exit_code == 0
    assert executed == [[sys.executable, "-m", "draft_service"]]
    assert runner.invoke(app, ["service", "oracle"]).exit_code == 2
