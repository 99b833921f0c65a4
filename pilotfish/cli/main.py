"""The command line: one module per command, gathered here."""

from __future__ import annotations

from typing import Annotated

import typer

from pilotfish import __version__
from pilotfish.cli.commands.bench import bench
from pilotfish.cli.commands.bench_load import load
from pilotfish.cli.commands.chat import chat
from pilotfish.cli.commands.demo import demo
from pilotfish.cli.commands.doctor import doctor
from pilotfish.cli.commands.drafter import drafter_app
from pilotfish.cli.commands.examine import examine
from pilotfish.cli.commands.generate import generate
from pilotfish.cli.commands.health import health
from pilotfish.cli.commands.keys import keys_app
from pilotfish.cli.commands.models import models_app
from pilotfish.cli.commands.plan import plan
from pilotfish.cli.commands.profile import profile
from pilotfish.cli.commands.serve import serve
from pilotfish.cli.commands.service import service
from pilotfish.cli.commands.show_config import config
from pilotfish.cli.commands.train import train

app = typer.Typer(
    name="pilotfish",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]pilotfish serve[/] in one terminal and [bold]pilotfish generate 'Why is the sky blue?'[/] "
    "in another. Something does not work? [bold]pilotfish doctor[/] says what.\n\n"
    "Exit codes: 0 done, 1 failed (standard error says why), 2 wrong usage, 130 Ctrl-C.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pilotfish {__version__}")
        raise typer.Exit


@app.callback()
def pilotfish(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Lossless speculative decoding whose drafter lives on its own machines.

    A draft service proposes tokens, a target service verifies them, an orchestrator streams the
    answer: the same text that the target alone would write, sooner.
    """


bench_app = typer.Typer(invoke_without_command=True)
bench_app.callback()(bench)
bench_app.command()(load)

app.command()(serve)
app.command("up")(serve)
app.command()(generate)
app.command()(chat)
app.add_typer(bench_app, name="bench")
app.command()(examine)
app.command()(train)
app.command()(plan)
app.command()(profile)
app.command()(config)
app.command()(doctor)
app.command()(service)
app.command()(health)
app.add_typer(models_app, name="models")
app.add_typer(keys_app, name="keys")
app.add_typer(drafter_app, name="drafter")
app.command(hidden=True)(demo)


def main() -> None:
    app()
