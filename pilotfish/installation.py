"""What an installation lacks, in words: packages come in extras by role, and nobody has to have them all."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from pilotfish.errors import ConfigError

OWN_PACKAGES = ("pilotfish", "draft_service", "target_service", "orchestrator")

_EXTRAS = {"torch": "engine", "transformers": "engine", "cryptography": "engine", "ray": "ray"}
"""Extras by package; all others are the router's."""


@contextlib.contextmanager
def needed_for(part: str) -> Iterator[None]:
    """Around the imports of a command. Raises SystemExit, with what to install, if one of another's packages is
    missing; a module of our own that is missing is a fault of ours and stays what it is.

    part: what cannot run without them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", *OWN_PACKAGES):
            raise
        raise SystemExit(f"error: {_advice(missing, part)}") from None


def require(package: str, part: str) -> None:
    """Raise ConfigError, with what to install, unless a package is installed. part: what cannot run without it."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(_advice(package, part))


def _advice(package: str, part: str) -> str:
    extra = _EXTRAS.get(package, "router")
    return f"{part} needs {package}, which is not installed: pip install 'pilotfish[{extra}]'"
