"""The only module that reads environment variables."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from pilotfish.errors import ConfigError

CONFIG_FILE = "PILOTFISH_CONFIG"
"""The configuration file where no `--config` names one."""
SETTING_PREFIX = "PILOTFISH__"
"""PILOTFISH__TARGET__ENGINE__DEVICE=cuda is target.engine.device. Two underscores, because Kubernetes puts
PILOTFISH_PORT and the like into every container beside a Service named `pilotfish`."""
_SERVICE_VARIABLES = MappingProxyType({"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"})
"""Have gRPC wait for messages on the thread that tells asyncio of them. Its event engine wakes two threads more for
each: a round in which nothing is computed takes 0.75 ms with it and 0.53 without (grpcio 1.85, two cores)."""


def default_config_file() -> str:
    """$PILOTFISH_CONFIG; empty: there is none."""
    return os.environ.get(CONFIG_FILE, "")


def setting_variables() -> dict[str, str]:
    """The variables that override configuration values, and the key of each (`section.key`), by name.

    Empty ones count as absent, as templates leave them.
    """
    names = sorted(name for name, value in os.environ.items() if name.startswith(SETTING_PREFIX) and value)
    return {name: name.removeprefix(SETTING_PREFIX).replace("__", ".").lower() for name in names}


def default_cache_dir() -> str:
    """$PILOTFISH_CACHE, else the XDG cache folder.

    Raises ConfigError for a user without a home (a container's numeric user).
    """
    root = os.environ.get("PILOTFISH_CACHE")
    if root:
        return root
    try:
        return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pilotfish")
    except RuntimeError:
        raise ConfigError("this user has no home folder for the model cache: set PILOTFISH_CACHE to a folder") from None


def environment(variables: Mapping[str, str] | None = None, *, without: Collection[str] = ()) -> dict[str, str]:
    """This process's environment for a child: with `variables` set and those named in `without` left out."""
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, **(variables or {})}


def service_environment(*, without: Collection[str] = ()) -> dict[str, str]:
    """As `environment`, for a child that is a service: gRPC reads its variables when it is imported. What is set stays
    as it is."""
    return {**_SERVICE_VARIABLES, **environment(without=without)}
