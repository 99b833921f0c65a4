"""`python -m pilotfish.serve_app.check serve.yaml`: what is wrong with it, before anything starts.

Keys and values are always checked; with --address also whether the cluster's nodes have room for the replicas.
"""

from __future__ import annotations

import argparse
import difflib
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import ray
from pydantic import BaseModel, ValidationError
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema

from pilotfish.config import config_from_dict
from pilotfish.config.yaml_file import read_yaml
from pilotfish.errors import ConfigError, PilotfishError, UnavailableError
from pilotfish.pools.capacity import check_room, demand
from pilotfish.serve_app.cluster import nodes

MODELS: Mapping[str, type[BaseModel]] = {"autoscaling_config": AutoscalingConfig}
"""Of keys whose annotation in Serve's schema comes with a plain dictionary, or as one."""


def check_serve_file(values: Any) -> ServeDeploySchema:
    """The file as Serve reads it.

    Raises ConfigError that names every key which Serve or Pilotfish does not know, and every value that they refuse.
    """
    if not isinstance(values, dict):
        raise ConfigError("a file for `serve deploy` is a mapping with the key applications")
    if problems := list(_unknown_keys(ServeDeploySchema, values, "")):
        raise ConfigError("; ".join(problems))
    try:
        read = ServeDeploySchema.model_validate(values)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise ConfigError("; ".join(lines)) from None
    for application in read.applications:
        config_from_dict(application.args, source=f"args of application {application.name}")
    return read


def _unknown_keys(model: type[BaseModel], values: Mapping[str, Any], path: str) -> Iterator[str]:
    """A line for each key under `path` that no field of the model is for, nested models included."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in values.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            similar = difflib.get_close_matches(str(key), fields, n=1)
            yield f"{where}: Ray Serve has no such key" + (f"; did you mean {similar[0]}?" if similar else "")
            continue
        within = MODELS.get(key) or next(_models(fields[key].annotation), None)
        if within is None:
            continue
        items = value if isinstance(value, list) else [value]
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield from _unknown_keys(within, item, f"{where}.{index}" if isinstance(value, list) else where)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Those in an annotation such as `list[Model] | dict | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


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
