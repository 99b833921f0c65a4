"""`python -m pilotfish.serve_app.check serve.yaml`: what is wrong with it, before anything starts.

Keys and values are always checked; with --address also whether the cluster's nodes have room for the replicas.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import ray

from pilotfish.config.yaml_file import read_yaml
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.pools.capacity import check_room, demand
from pilotfish.serve_app.cluster import nodes
from pilotfish.serve_app.schema import check_serve_file

CONNECT_TIMEOUT_S = 5.0


def check(path: Path, address: str) -> str:
    """What was found to be right. address: of a Ray cluster, as `ray.init` takes it; empty: none is asked.

    Raises ConfigError for what is wrong, UnavailableError when the cluster does not answer.
    """
    read = check_serve_file(read_yaml(path, "Serve file"))
    deployments = [deployment for application in read.applications for deployment in application.deployments]
    found = f"{path}: {len(read.applications)} applications, {len(deployments)} deployments"
    if not address:
        return f"{found}; --address ADDRESS also checks for room on a cluster"
    _require_listener(address)
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UnavailableError(f"no Ray cluster at {address}: {error}") from None
    try:
        there = nodes()
    finally:
        ray.shutdown()
    check_room([demand(deployment.model_dump(exclude_unset=True)) for deployment in deployments], there)
    return f"{found}, with room on the {len(there)} nodes"


def _require_listener(address: str) -> None:
    """Raises UnavailableError where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return  # `auto`, or Ray's to refuse
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise UnavailableError(f"no Ray cluster at {address}: {error}") from None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pilotfish.serve_app.check", description=__doc__)
    parser.add_argument("file", type=Path, help="what `pilotfish config --serve` printed")
    parser.add_argument("--address", default="", help="of a running Ray cluster: host:6379, or auto")
    arguments = parser.parse_args()
    try:
        print(check(arguments.file, arguments.address))
    except PilotfishError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
