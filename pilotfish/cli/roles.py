"""The services that a container can be, one each."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pilotfish.config import Config
from pilotfish.errors import ConfigError

ROLE_VARIABLE = "PILOTFISH_ROLE"


class Role(StrEnum):
    """A service, by the name of its section of the configuration; the trainer's is draft.learning."""

    TARGET = "target"
    DRAFT = "draft"
    ORCHESTRATOR = "orchestrator"
    TRAINER = "trainer"

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        match self:
            case Role.ORCHESTRATOR:
                return "orchestrator"
            case Role.TRAINER:
                return "pilotfish.training.online"
            case _:
                return f"{self}_service"

    def listens_on(self, config: Config) -> tuple[str, int]:
        """Host and port of its gRPC server. Raises ConfigError for the trainer, which has none."""
        match self:
            case Role.TARGET:
                return config.target.host, config.target.port
            case Role.DRAFT:
                return config.draft.host, config.draft.port
            case Role.ORCHESTRATOR:
                return config.orchestrator.host, config.orchestrator.port
            case Role.TRAINER:
                raise ConfigError("the trainer answers no calls: `pilotfish drafter list` shows what it does")


RoleArgument = Annotated[Role, typer.Argument(envvar=ROLE_VARIABLE, help="Which service.", show_default=False)]
