"""What an image is made of, checked without a container engine."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = (
    *("pyproject.toml", "README.md", "LICENSE"),
    *("models/", "pilotfish/", "draft_service/", "target_service/", "orchestrator/"),
)
BUILD_TIMEOUT_S = 100


@pytest.fixture(scope="session")
def tracked() -> list[str]:
    """What is in the repository, or about to be, as the Dockerfile would copy it."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout: what belongs to the project is not known")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="session")
def wheel(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the Dockerfile does, from a copy: the working tree's build/ folder keeps files of the past. Weights are
    empty, because to compress them takes most of the time."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        if name.startswith(COPIED):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            content = b"" if name.endswith(".safetensors") else (ROOT / name).read_bytes()
            (source / name).write_bytes(content)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(dist))
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert result.returncode == 0, result.stderr
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's packages, on a path without the sources."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
