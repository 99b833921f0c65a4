"""The command line where its packages are, and where they are not."""

import os
import subprocess
import sys

import pytest

WITHOUT = """
import importlib.abc, runpy, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {package!r} or name.startswith({package!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["pilotfish", "--version"]
runpy.run_module("pilotfish.cli", run_name="__main__")
"""


def run(package: str) -> subprocess.CompletedProcess[str]:
    """`pilotfish --version` where a package is missing."""
    code = WITHOUT.format(package=package)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_clients_installation_says_what_to_install(package: str) -> None:
    ended = run(package)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert package in line
    assert "pip install 'pilotfish[router]'" in line


def test_help_is_shown_where_the_terminal_is_not_utf_8() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pilotfish.cli", "serve", "--help"],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"--port" in ended.stdout


def test_ctrl_c_during_the_imports_ends_quietly() -> None:
    code = WITHOUT.format(package="typer").replace(
        'raise ModuleNotFoundError(f"No module named {name!r}", name=name)', "raise KeyboardInterrupt"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
