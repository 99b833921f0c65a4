"""`pilotfish config`: what the services would run with."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml

from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.config import Config, config_to_yaml, default_cache_dir, load_config


@fail_on_error()
def config(
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    serve: Annotated[bool, typer.Option("--serve", help="As a file for `serve deploy` instead.")] = False,
) -> None:
    """Print the effective configuration as YAML, defaults included.

    On a cluster: `pilotfish config --serve --set target.host=0.0.0.0 --set security.internal.token_file=FILE >
    serve.yaml; serve deploy serve.yaml`
    """
    effective = load_config(config_file, overrides or ())
    print(serve_config(effective) if serve else config_to_yaml(effective), end="")


def serve_config(effective: Config) -> str:
    """The declarative Ray Serve configuration that runs `effective`."""
    arguments: dict[str, Any] = yaml.safe_load(config_to_yaml(effective))
    if effective.cache_dir == default_cache_dir():
        # Each machine of the cluster has its own default.
        del arguments["cache_dir"]
    application = {
        "name": "pilotfish",
        "import_path": "pilotfish.serve_app:build",
        # No HTTP route: the public address is the orchestrator's own.
        "route_prefix": None,
        "args": arguments,
    }
    values = {
        "proxy_location": "Disabled",
        "logging_config": {"enable_access_log": False},
        "applications": [application],
    }
    return yaml.safe_dump(values, sort_keys=False)
