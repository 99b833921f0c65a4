"""Options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pilotfish.config import OrchestratorConfig

_HOST_AND_PORT = re.compile(r".+:(?P<port>\d{1,5})")


def check_address(address: str | None) -> str | None:
    """The address, if it names a host and a port. Raises typer.BadParameter, before anything is dialled in vain."""
    if address is None:
        return None
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise typer.BadParameter(f"{address!r} is not HOST:PORT, such as {DEFAULT_ADDRESS}")
    return address


DEFAULT_ADDRESS = f"{OrchestratorConfig.host}:{OrchestratorConfig.port}"

Address = Annotated[
    str,
    typer.Option(
        "--address", "-a", metavar="HOST:PORT", callback=check_address, help="Where the orchestrator listens."
    ),
]
BenchAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        "-a",
        metavar="HOST:PORT",
        callback=check_address,
        help="A running orchestrator; default: start one.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="YAML configuration; else $PILOTFISH_CONFIG, else the defaults."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one configuration value; repeatable."),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colours.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, for programs.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Give up after this long.")]
