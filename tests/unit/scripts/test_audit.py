"""The audit says what it found, and does not take silence for an all-clear. The lock holds what was tested."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.scripts import SCRIPTS, load_script

ROOT = Path(__file__).parents[3]
_PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)", re.MULTILINE)
audit = load_script(SCRIPTS / "audit.py")


def package(*vulnerabilities: str, **values: str) -> dict[str, object]:
    vulns = [{"id": name, "fix_versions": ["2"]} for name in vulnerabilities]
    return {"name": "a", "version": "1", **({} if values else {"vulns": vulns}), **values}


def test_a_vulnerability_is_told_and_fails() -> None:
    text, status = audit.verdict({"dependencies": [package("CVE-1"), package()]})
    assert status == 1
    assert "a 1: CVE-1, mended in 2" in text
    assert "2 packages checked, 1 known" in text


def test_nothing_found_passes_and_names_what_was_not_there() -> None:
    text, status = audit.verdict({"dependencies": [package(), package(skip_reason="not found")]})
    assert (text, status) == ("1 packages checked, 0 known vulnerabilities, 1 packages not found", 0)


@pytest.mark.parametrize("report", [None, {"dependencies": [package(skip_reason="not found")]}])
def test_silence_is_no_all_clear(report: dict[str, object] | None) -> None:
    text, status = audit.verdict(report)
    assert status == 0
    assert text.startswith("nothing was checked")


def pinned(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    return {_normal(match["name"]): match["version"] for match in _PINNED.finditer(text)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("file", "roles"),
    [("requirements.lock", ("router", "engine", "ray")), ("docker/router-requirements.txt", ("router",))],
)
def test_the_lock_holds_every_dependency_in_the_tested_version_with_hashes(file: str, roles: tuple[str, ...]) -> None:
    """If this fails after a change of dependencies: `make lock`."""
    lock, constraints = pinned(ROOT / file), pinned(ROOT / "constraints.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    deployed = [*project["dependencies"], *(each for role in roles for each in project["optional-dependencies"][role])]
    wanted = {_normal(re.split(r"[\s<>=!;\[]", each, maxsplit=1)[0]) for each in deployed} - {"pilotfish"}
    assert wanted - lock.keys() == set()
    assert {"torch", "ray"} & lock.keys() == ({"torch", "ray"} if "engine" in roles else set())
    different = {name: (lock[name], constraints[name]) for name in lock.keys() & constraints.keys()}
    assert {name: pair for name, pair in different.items() if pair[0] != pair[1]} == {}
    blocks = (ROOT / file).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(blocks):
        if _PINNED.match(line):
            assert "--hash=sha256:" in blocks[number + 1], line
