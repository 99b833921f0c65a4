"""Whether Python is new enough."""

from __future__ import annotations

import platform
import sys

from pilotfish.cli.checks.finding import Finding, Verdict

OLDEST_PYTHON = (3, 11)


def check_python(found: tuple[int, ...] = sys.version_info[:2]) -> Finding:
    """found: its version."""
    where = f"Python {platform.python_version()} at {sys.executable} on {platform.platform(terse=True)}"
    if found < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", Verdict.PROBLEM, where, f"make an environment with Python {oldest} or newer")
    return Finding("python", Verdict.OK, where)
