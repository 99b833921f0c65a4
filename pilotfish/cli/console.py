"""The terminal: consoles for what people read. Data for programs goes to stdout unstyled."""

from __future__ import annotations

from rich.console import Console


def output_console(*, no_color: bool = False) -> Console:
    """Where answers and tables go."""
    return Console(no_color=no_color or None, highlight=False)


def error_console() -> Console:
    """Where messages about the run go, so that stdout can be piped."""
    return Console(stderr=True, highlight=False)
