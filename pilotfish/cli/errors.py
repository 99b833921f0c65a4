"""How the command line fails: one red line on stderr, a meaningful exit code, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.markup import escape

from pilotfish.cli.console import error_console
from pilotfish.errors import PilotfishError

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
"""128 + SIGINT, what shells report for a program that Ctrl-C ended."""


@contextmanager
def fail_on_error() -> Iterator[None]:
    """Turn a PilotfishError into one red line and exit code 1, Ctrl-C into exit code 130.

    Works as a context manager and as a decorator. Any other exception is a fault of ours and keeps
    its traceback.
    """
    try:
        yield
    except PilotfishError as error:
        message = " ".join(str(error).split()) or type(error).__name__
        error_console().print(f"[bold red]error:[/] {escape(message)}", style="red", soft_wrap=True, highlight=False)
        raise typer.Exit(EXIT_FAILURE) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
