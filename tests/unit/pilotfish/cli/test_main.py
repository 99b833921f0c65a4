"""The command line introduces itself."""

from collections.abc import Iterator

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pilotfish import __version__
from pilotfish.cli.main import app

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"pilotfish {__version__}\n"


def commands(group: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """All that can be run, by its words."""
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            if not getattr(command, "no_args_is_help", False) or not hasattr(command, "commands"):
                yield " ".join((*path, name)), command
            yield from commands(command, *path, name)


COMMANDS = dict(commands(get_command(app)))


# Services run until they are ended; their logs may be JSON.
@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"serve", "service", "up"}))
def test_every_command_has_a_form_for_programs(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"models list", "models show", "keys list", "keys revoke"}))
def test_help_teaches_by_examples(name: str) -> None:
    help_text = COMMANDS[name].help or ""
    assert "Examples" in help_text
    assert f"pilotfish {name}" in help_text.partition("Examples")[2]


def test_the_shell_completes_commands_and_options() -> None:
    environment = {"_PILOTFISH_COMPLETE": "complete_bash", "COMP_WORDS": "pilotfish gen", "COMP_CWORD": "1"}
    result = runner.invoke(app, prog_name="pilotfish", env=environment)
    assert "generate" in result.stdout.split()
    environment |= {"COMP_WORDS": "pilotfish generate --spec", "COMP_CWORD": "2"}
    assert "--speculation" in runner.invoke(app, prog_name="pilotfish", env=environment).stdout.split()
