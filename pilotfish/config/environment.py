"""The only module that reads environment variables."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path


def default_cache_dir() -> str:
    """$PILOTFISH_CACHE, else the XDG cache folder."""
    root = os.environ.get("PILOTFISH_CACHE")
    if root:
        return root
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pilotfish")


def environment(variables: Mapping[str, str] | None = None, *, without: Collection[str] = ()) -> dict[str, str]:
    """This process's environment for a child: with `variables` set and those named in `without` left out."""
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, **(variables or {})}
