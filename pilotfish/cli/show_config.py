"""`pilotfish config`: what the services would run with."""

from __future__ import annotations

from typing import Annotated

import typer
import yaml

from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.config import config_to_yaml, load_config
from pilotfish.pools.serve_file import serve_file


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
    print(yaml.safe_dump(serve_file(effective), sort_keys=False) if serve else config_to_yaml(effective), end="")
