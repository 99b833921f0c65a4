"""`pilotfish health`: whether a service is well, as an exit code; for health checks of containers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Annotated

import grpc.aio
import typer
from filelock import FileLock
from filelock import Timeout as FileLockTimeout

from pilotfish.cli.errors import EXIT_FAILURE, fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, Overrides, Timeout, check_address
from pilotfish.cli.roles import ROLE_VARIABLE, Role
from pilotfish.client.access import Access
from pilotfish.client.health import Health, Status, check_health
from pilotfish.config import Config, load_config
from pilotfish.config.fields import address_of
from pilotfish.learning.versions import TRAINER_LOCK
from pilotfish.rpc.link_security import LinkSecurity

LOOPBACK = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Where a listener on every interface is reached from its own machine."""


@fail_on_error()
def health(
    where: Annotated[
        str,
        typer.Argument(
            metavar="ROLE|HOST:PORT",
            envvar=ROLE_VARIABLE,
            help="target, draft, orchestrator or trainer: the one on this machine, as configured. Or an address.",
        ),
    ],
    service: Annotated[str, typer.Option("--service", help="Health name: `readiness` or `liveness`.")] = "readiness",
    tls_name: Annotated[
        str, typer.Option("--tls-name", help="Name in the service's certificate, if it is not the host in the address.")
    ] = "",
    timeout_s: Timeout = 5.0,
    as_json: AsJson = False,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Ask a service by gRPC's health protocol whether it serves. Exit code 0: it does; 1: it does not.

    Certificates come from the configuration for a role, and from $PILOTFISH_CA_FILE for an address.

    [bold]Examples[/]

      pilotfish health orchestrator                           the one on this machine

      pilotfish health 10.0.0.7:50051 --timeout 2 --json
    """
    found = asyncio.run(_ask(where, service, tls_name, timeout_s, config_file, overrides or []))
    if as_json:
        print(json.dumps(dataclasses.asdict(found)))
    else:
        print(
            f"{found.address} {found.service or '(all)'}: {found.status}" + (f" ({found.detail})" * bool(found.detail))
        )
    if not found.is_serving:
        raise typer.Exit(EXIT_FAILURE)


async def _ask(
    where: str, service: str, tls_name: str, timeout_s: float, config_file: Path | None, overrides: list[str]
) -> Health:
    if where == Role.TRAINER:
        return trainer_health(load_config(config_file, overrides))
    if where in list(Role):
        address, channel = open_role(Role(where), load_config(config_file, overrides), tls_name)
    else:
        address = str(check_address(where))
        channel = dataclasses.replace(Access.from_environment(), server_name=tls_name).open_async_channel(address)
    return await check_health(channel, address, service, timeout_s)


def trainer_health(config: Config) -> Health:
    """Whether a trainer works in the folder of the configuration: it answers no calls, and holds a lock there."""
    path = config.learning_folder / TRAINER_LOCK
    status: Status = "NOT_SERVING"
    try:
        if path.is_file():
            with FileLock(path, timeout=0):
                pass
    except FileLockTimeout:
        status = "SERVING"
    return Health(address=str(path), service="trainer", status=status, latency_ms=0.0)


def open_role(role: Role, config: Config, tls_name: str) -> tuple[str, grpc.aio.Channel]:
    """Address of this machine's service of that role, and a channel to it that trusts what the configuration names.

    Raises ConfigError for files that cannot be used.
    """
    host, port = role.listens_on(config)
    address = address_of(LOOPBACK.get(host, host), port)
    if role is not Role.ORCHESTRATOR:
        internal = config.security.internal
        if tls_name and internal.uses_tls:
            internal = dataclasses.replace(internal, server_name=tls_name)
        return address, LinkSecurity(internal).open_channel(address)
    access = dataclasses.replace(Access.from_environment(), server_name=tls_name)
    if config.security.public.uses_tls and not access.ca_file:
        # Its own certificate is proof enough that it is the one that is meant.
        access = dataclasses.replace(access, ca_file=config.security.public.certificate)
    return address, access.open_async_channel(address)
