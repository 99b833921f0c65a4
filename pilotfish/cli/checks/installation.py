"""The installation: Python, and the packages that this release asks for."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from packaging.requirements import Requirement

from pilotfish import __version__
from pilotfish.cli.checks.finding import Finding, Verdict

OLDEST_PYTHON = (3, 11)
_MAIN_PACKAGES = {"engine": "torch", "ray": "ray"}


def check_installation() -> Iterator[Finding]:
    """Python and the packages."""
    yield _python(sys.version_info[:2])
    try:
        requirements = requires("pilotfish") or []
    except PackageNotFoundError:
        advice = "install it: pip install -e . in the repository, or `make setup`"
        yield Finding("packages", Verdict.WARNING, "pilotfish runs from its sources, without being installed", advice)
        return
    yield check_packages(requirements)


def check_packages(requirements: Iterable[str]) -> Finding:
    """Whether what is installed is what these lines of a project's metadata ask for.

    Of its extras those count whose main package is there, and `router`: the command line is in it.
    """
    wanted = [Requirement(line) for line in requirements]
    extras = ["router", *(extra for extra, package in _MAIN_PACKAGES.items() if find_spec(package))]
    needed = [
        item
        for item in wanted
        if item.name != "pilotfish"
        and (item.marker is None or any(item.marker.evaluate({"extra": extra}) for extra in extras))
    ]
    faults = [fault for item in needed if (fault := _fault(item))]
    if faults:
        advice = "install again: `make setup`, or pip install with the release's constraints.txt"
        return Finding("packages", Verdict.PROBLEM, "; ".join(faults), advice)
    has = f"pilotfish[{','.join(extras)}] {__version__}, and all {len(needed)} packages that it needs"
    return Finding("packages", Verdict.OK, has)


def _python(found: tuple[int, ...]) -> Finding:
    where = f"Python {platform.python_version()} at {sys.executable} on {platform.platform(terse=True)}"
    if found < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", Verdict.PROBLEM, where, f"make an environment with Python {oldest} or newer")
    return Finding("python", Verdict.OK, where)


def _fault(requirement: Requirement) -> str:
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(found, prereleases=True):
        return ""
    return f"{requirement.name} is {found}, not {requirement.specifier}"
