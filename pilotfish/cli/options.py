"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.config import OrchestratorConfig

DEFAULT_ADDRESS = f"{OrchestratorConfig.host}:{OrchestratorConfig.port}"

Address = Annotated[str, typer.Option("--address", "-a", metavar="HOST:PORT", help="Where the orchestrator listens.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="YAML configuration; without it, the defaults.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one configuration value; repeatable."),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Do not colour.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Give up after this long.")]
