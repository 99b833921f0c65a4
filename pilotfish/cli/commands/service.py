"""`pilotfish service`: one service in the foreground, as containers run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.cli.roles import Role, RoleArgument
from pilotfish.config import service_environment


@fail_on_error()
def service(role: RoleArgument, config_file: ConfigFile = None, overrides: Overrides = None) -> None:
    """Run the target, draft or orchestrator service, or the trainer, in the foreground, until SIGTERM or Ctrl-C.

    For one service per container or machine; `pilotfish serve` runs all of them on this one. The orchestrator finds the
    others by orchestrator.target_addresses and orchestrator.draft_addresses. The trainer has the drafter learn from the
    traffic, at the lowest priority; it shares draft.learning.folder with the service that drafts.

    [bold]Examples[/]

      pilotfish service target --set target.model=MODEL --set target.host=0.0.0.0

      pilotfish service orchestrator --config pilotfish.yaml

      pilotfish service trainer --config pilotfish.yaml
    """
    # In place of this process: signals reach the service, and the command line's modules take no memory beside it.
    os.execve(sys.executable, service_command(role, config_file, overrides or ()), service_environment())


def service_command(role: Role, config_file: Path | None, overrides: Sequence[str]) -> list[str]:
    """The arguments of the service's process."""
    options = [] if config_file is None else ["--config", str(config_file)]
    settings = [part for override in overrides for part in ("--set", override)]
    return [sys.executable, "-m", role.module, *options, *settings]
