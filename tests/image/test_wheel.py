"""The wheel holds all that the services need, and they run from it."""

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

from pilotfish import __version__

PACKAGES = ("pilotfish/", "draft_service/", "target_service/", "orchestrator/")

READY = re.compile(r"target_service ready on 127\.0\.0\.1:(\d+) ")


def test_every_file_of_the_packages_is_in_it(wheel: Path, tracked: list[str]) -> None:
    """If a file is missing: `[tool.setuptools.package-data]`."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = {name for name in tracked if name.startswith(PACKAGES)}
    assert wanted - held == set()
    heads = {
        f"pilotfish-{__version__}.data/data/share/pilotfish/{name}" for name in tracked if name.startswith("models/")
    }
    assert heads - held == set()
    assert not any(name.startswith(("tests/", "benchmarks/", "build/")) for name in held)


def test_a_service_runs_from_it_and_ends_on_sigterm(installed: Path, tmp_path: Path) -> None:
    settings = ["--set", "emulation.profile=instant", "--set", "target.port=0"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installed), "PILOTFISH_CACHE": str(tmp_path / "cache")}
    program = (
        "import pilotfish, sys; from pilotfish.cli.main import main; "
        f"assert pilotfish.__file__.startswith({str(installed)!r}); main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "service", "target", *settings],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert READY.match(line), line + process.stderr.read() if process.stderr else line
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, errors
