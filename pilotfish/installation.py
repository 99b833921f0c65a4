"""What an installation lacks, in words: a client's has neither the services nor what they are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

OWN_PACKAGES = ("pilotfish", "draft_service", "target_service", "orchestrator")


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
        raise SystemExit(
            f"error: this installation is a client's: {part} needs {missing} and the other packages of the services: "
            "pip install 'pilotfish[serve]'"
        ) from None
