"""A process of its own that says how models are served, or why not, as JSON; it reads no weights.

`python -m pilotfish.cli.checks.model_probe FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pilotfish.errors import ModelError
from pilotfish.models.loading import require_supported
from pilotfish.models.store.folder import read_metadata


def verdicts(folders: list[str]) -> dict[str, dict[str, str]]:
    """For each folder `path`, on which a start would serve it, or `refusal`, what it would say."""
    return {folder: _verdict(Path(folder)) for folder in folders}


def _verdict(folder: Path) -> dict[str, str]:
    try:
        return {"path": str(require_supported(read_metadata(folder), folder))}
    except ModelError as error:
        return {"refusal": str(error)}


if __name__ == "__main__":
    print(json.dumps(verdicts(sys.argv[1:])))
