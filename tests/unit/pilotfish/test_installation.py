"""What is said where packages are missing."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.installation import needed_for, require


def test_a_missing_package_of_others_is_told_with_what_to_install() -> None:
    told = r"the draft service needs nowhere, .* pip install 'pilotfish\[router\]'"
    with pytest.raises(SystemExit, match=told), needed_for("the draft service"):
        importlib.import_module("nowhere.at_all")


def test_a_missing_module_of_ours_is_a_fault() -> None:
    with pytest.raises(ModuleNotFoundError), needed_for("the draft service"):
        importlib.import_module("pilotfish.no_such_module")


@pytest.mark.parametrize(("package", "extra"), [("torch", "engine"), ("ray", "ray")])
def test_a_package_belongs_to_a_role(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=rf"pip install 'pilotfish\[{extra}\]'"):
        require(package, "this")


RUN_SERVICES = """
import runpy, sys
sys.modules["uvloop"] = None
for service in sys.argv[1:]:
    try:
        runpy.run_module(service, run_name="__main__")
    except SystemExit as error:
        print(error)
"""


def test_a_service_in_a_clients_installation_ends_in_one_line() -> None:
    services = ("draft_service", "target_service", "orchestrator")
    command = [sys.executable, "-c", RUN_SERVICES, *services]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = ended.stdout.splitlines()
    assert len(lines) == len(services)
    assert all("needs uvloop, which is not installed: pip install 'pilotfish[router]'" in line for line in lines)
    assert ended.stderr == ""


RUN_COMMAND = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
sys.argv[1:] = ["--version"]
from pilotfish.cli.__main__ import main
main()
"""


def test_the_command_line_runs_in_a_routers_installation() -> None:
    """Without the libraries that only engines, Ray and training bring."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    missing = {re.split(r"[^a-zA-Z0-9_-]", each)[0] for extra in ("engine", "ray") for each in extras[extra]}
    command = [sys.executable, "-c", RUN_COMMAND, ",".join(sorted(missing - {"pilotfish"}))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.startswith("pilotfish "), ended.stdout + ended.stderr
