"""A process of its own that says why models cannot be served, as JSON; it reads no weights.

`python -m pilotfish.cli.checks.model_probe FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pilotfish.errors import ModelError
from pilotfish.models.loading import require_supported
from pilotfish.models.store.folder import read_metadata


def refusals(folders: list[str]) -> dict[str, str]:
    """What a start would say to each folder; empty: it serves the model."""
    return {folder: _refusal(Path(folder)) for folder in folders}


def _refusal(folder: Path) -> str:
    try:
        require_supported(read_metadata(folder), folder)
    except ModelError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(refusals(sys.argv[1:])))
