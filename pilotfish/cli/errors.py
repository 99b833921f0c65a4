"""How the command line fails: one red line on stderr, a meaningful exit code, no traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.markup import escape

from pilotfish.cli.console import error_console
from pilotfish.errors import PilotfishError

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
"""128 + SIGINT, what shells report for a program that Ctrl-C ended."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def fail_on_error() -> Iterator[None]:
    """Turn a PilotfishError, a full disk and another user's file into one red line and exit code 1, Ctrl-C into 130.

    Works as a context manager and as a decorator. Any other exception is a fault of ours and keeps
    its traceback.
    """
    try:
        yield
        if sys.stdout is not None:  # None: closed by the caller
            sys.stdout.flush()  # here, where a full disk can still be reported
    except PilotfishError as error:
        _report(str(error) or type(error).__name__)
        raise typer.Exit(EXIT_FAILURE) from None
    except OSError as error:
        if error.errno in _NO_SPACE:
            _discard_output()
            _report(f"cannot write {error.filename or 'the output'}: {error.strerror}")
        elif error.errno in _NOT_ALLOWED and error.filename:
            _report(f"cannot use {error.filename}: {error.strerror}")
        else:
            raise
        raise typer.Exit(EXIT_FAILURE) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _report(message: str) -> None:
    line = f"[bold red]error:[/] {escape(' '.join(message.split()))}"
    error_console().print(line, style="red", soft_wrap=True, highlight=False)


def _discard_output() -> None:
    """Drop what is buffered and cannot be written: without this Python would try again at its end, and say so."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
