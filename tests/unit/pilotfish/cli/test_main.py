"""The command line introduces itself."""

import pytest
from typer.testing import CliRunner

from pilotfish import __version__
from pilotfish.cli.main import app

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"pilotfish {__version__}\n"


def test_help_names_every_command_and_where_to_start() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("up", "generate", "chat", "config", "models"):
        assert command in result.stdout
    assert "Start with" in result.stdout


@pytest.mark.parametrize("command", ["up", "generate", "chat", "config", "models", "demo"])
def test_every_command_has_help(command: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout
