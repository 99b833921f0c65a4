"""Folders of what is as secret as the prompts."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder that its user alone may open, and the one that it is in likewise; those that are there stay as they
    are. Raises OSError."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
