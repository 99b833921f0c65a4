"""The services that a container can be, one each."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pilotfish.config import Config

ROLE_VARIABLE = "PILOTFISH_ROLE"


class Role(StrEnum):
    """A service, by the name of its section of the configuration."""

    TARGET = "target"
    DRAFT = "draft"
    ORCHESTRATOR = "orchestrator"

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return "orchestrator" if self is Role.ORCHESTRATOR else f"{self}_service"

    def listens_on(self, config: Config) -> tuple[str, int]:
        """Host and port of its gRPC server."""
        match self:
            case Role.TARGET:
                return config.target.host, config.target.port
            case Role.DRAFT:
                return config.draft.host, config.draft.port
            case Role.ORCHESTRATOR:
                return config.orchestrator.host, config.orchestrator.port


RoleArgument = Annotated[Role, typer.Argument(envvar=ROLE_VARIABLE, help="Which service.", show_default=False)]
