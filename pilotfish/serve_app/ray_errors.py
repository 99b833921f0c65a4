"""What Ray raises, in words of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pilotfish.errors import PilotfishError, UnavailableError

_ADVICE = (
    "A machine with too much to do or too little memory is the usual reason: try again when it is calmer, or run "
    "`pilotfish serve` without --ray, which needs no Ray"
)


@contextlib.contextmanager
def told_as_unavailable(doing: str) -> Iterator[None]:
    """Raise UnavailableError for whatever Ray raises in the block.

    doing: what Ray was to do there, after "could not".
    """
    try:
        yield
    except PilotfishError:
        raise
    except Exception as error:
        # Ray has no tree of exceptions that would cover its start: it raises RayError, RuntimeError, TimeoutError,
        # ConnectionError, ValueError and Exception itself.
        raise UnavailableError(f"Ray could not {doing}: {_first_line(error)}. {_ADVICE}") from error


def _first_line(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line.rstrip(".") for line in lines if line), type(error).__name__)
