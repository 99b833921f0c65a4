"""`pilotfish config`: what the services would run with."""

from __future__ import annotations

import json
from typing import Annotated

import typer
import yaml

from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, Overrides
from pilotfish.cli.serve_flags import with_flags
from pilotfish.config import config_to_yaml, load_config
from pilotfish.pools.options import serve_file


@with_flags
@fail_on_error()
def config(
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    serve: Annotated[bool, typer.Option("--serve", help="Print a file for `serve deploy` instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the effective configuration as YAML, defaults included; takes the flags of `pilotfish serve`.

    docs/configuration.md has every key with its unit, default and reason.

    [bold]Examples[/]

      pilotfish config > pilotfish.yaml                       a file to start from

      pilotfish config MODEL --max-model-len 4096             what flags result in

      pilotfish config --config pilotfish.yaml --json         for programs

      pilotfish config --serve --set target.host=0.0.0.0 --set security.internal.token_file=FILE > serve.yaml;
      serve deploy serve.yaml                                 on a Ray cluster
    """
    effective = load_config(config_file, overrides or ())
    text = yaml.safe_dump(serve_file(effective), sort_keys=False) if serve else config_to_yaml(effective)
    # JSON is made of the YAML: both say the same.
    print(json.dumps(yaml.safe_load(text), indent=2) + "\n" if as_json else text, end="")
