"""The terminal: consoles for what people read. Data for programs goes to stdout unstyled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from rich.console import Console

ResultT = TypeVar("ResultT", bound=msgspec.Struct)


def output_console(*, no_color: bool = False) -> Console:
    """Where answers and tables go."""
    return Console(no_color=no_color or None, highlight=False)


def shows_colours(console: Console) -> bool:
    """Whether what is printed there is coloured: a terminal that can, and nobody who has said no (NO_COLOR)."""
    return console.color_system is not None and not console.no_color


def error_console(*, no_color: bool = False) -> Console:
    """Where messages about the run go, so that stdout can be piped."""
    return Console(stderr=True, no_color=no_color or None, highlight=False)


def print_result(
    result: ResultT, show: Callable[[ResultT, Console], None], *, as_json: bool, no_color: bool = False
) -> None:
    """As `show` has it for people; as JSON for programs: field names are those of the structs."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(result), indent=1).decode())
    else:
        show(result, output_console(no_color=no_color))
