"""The terminal: consoles for what people read. Data for programs goes to stdout unstyled."""

from __future__ import annotations

from rich.console import Console


def output_console(*, no_color: bool = False) -> Console:
    """Where answers and tables go."""
    return Console(no_color=no_color or None, highlight=False)


def shows_colours(console: Console) -> bool:
    """Whether what is printed there is coloured: a terminal that can, and nobody who has said no (NO_COLOR)."""
    return console.color_system is not None and not console.no_color


def error_console(*, no_color: bool = False) -> Console:
    """Where messages about the run go, so that stdout can be piped."""
    return Console(stderr=True, no_color=no_color or None, highlight=False)
