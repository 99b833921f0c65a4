"""The installation: Python, and that it is one."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from pilotfish.cli.checks.finding import Finding, Verdict

OLDEST_PYTHON = (3, 11)


def check_installation() -> Iterator[Finding]:
    """Python and the package."""
    yield _python(sys.version_info[:2])
    try:
        found = f"pilotfish {version('pilotfish')}; `pip check` looks through what it needs"
        yield Finding("package", Verdict.OK, found)
    except PackageNotFoundError:
        advice = "install it: pip install -e . in the repository, or `make setup`"
        yield Finding("package", Verdict.WARNING, "pilotfish runs from its sources, without being installed", advice)


def _python(found: tuple[int, ...]) -> Finding:
    where = f"Python {platform.python_version()} at {sys.executable} on {platform.platform(terse=True)}"
    if found < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", Verdict.PROBLEM, where, f"make an environment with Python {oldest} or newer")
    return Finding("python", Verdict.OK, where)
