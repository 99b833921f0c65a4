"""Draft heads that come with Pilotfish."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from pilotfish.errors import ModelNotFoundError

_FOLDERS = (
    Path(__file__).resolve().parents[2] / "models",
    Path(sysconfig.get_path("data")) / "share" / "pilotfish" / "models",
)
"""Folders of models in a checkout, and where the wheel puts them."""


def is_local(name_or_path: str) -> bool:
    """Whether `head_folder` takes it for a path."""
    return _is_head(Path(name_or_path).expanduser())


def shipped_head(model: str, proposer: str) -> str:
    """The name of that drafter's head for a target of the catalogue; empty: none comes with Pilotfish."""
    name = f"{model}-{proposer}"
    return name if Path(name).name == name and any(_is_head(folder / name) for folder in _FOLDERS) else ""


def head_folder(name_or_path: str) -> Path:
    """The folder of a head that is named by its path or, if it was shipped, by its name.

    Raises: ModelNotFoundError when there is none.
    """
    candidates = [Path(name_or_path).expanduser(), *(folder / name_or_path for folder in _FOLDERS)]
    found = next((folder for folder in candidates if _is_head(folder)), None)
    if found is None:
        shipped = sorted({path.parent.name for folder in _FOLDERS for path in folder.glob("*/config.json")})
        raise ModelNotFoundError(
            f"{name_or_path!r} is no folder of a draft head; the heads that come with Pilotfish: "
            f"{', '.join(shipped) or 'none'}. Download one of the hub first: hf download ORG/HEAD --local-dir FOLDER"
        )
    return found


def _is_head(folder: Path) -> bool:
    return (folder / "config.json").is_file()
