"""The chart, rendered by both majors of Helm with every values file of its ci folder, with and without all extras."""

import os
import subprocess
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.support.kubernetes_schemas import CustomResources, custom_resources
from tests.support.scripts import SCRIPTS, load_script

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "pilotfish"
CASES = sorted(
    path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml") if "extras" not in path.name
)
OVER_GPU = ("gke", "eks", "aks", "rayservice-gpu")
"""What these files say comes after gpu-values.yaml."""
MAJORS = ("helm4", "helm3")
COMMAND_TIMEOUT_S = 60

Objects = list[dict[str, Any]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`case`: a values file; `extras`: whether with all extras; `major`: which Helm."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", CASES)
    if "extras" in metafunc.fixturenames:
        metafunc.parametrize("extras", [False, True], ids=["plain", "extras"])
    if "major" in metafunc.fixturenames:
        metafunc.parametrize("major", MAJORS)


@pytest.fixture(scope="session")
def kubernetes_tools() -> ModuleType:
    return load_script(SCRIPTS / "kubernetes_tools.py")


@pytest.fixture(scope="session")
def programs(kubernetes_tools: ModuleType) -> dict[str, Path]:
    """helm4, helm3 and kubectl; skips where they cannot be had."""
    try:
        return kubernetes_tools.fetch_programs(kubernetes_tools.tools_folder())
    except (kubernetes_tools.ToolError, OSError) as error:
        pytest.skip(f"no Helm: {error}")


@pytest.fixture(scope="session")
def chart_scripts(kubernetes_tools: ModuleType) -> tuple[ModuleType, ModuleType]:
    """scripts/kustomize_files.py and scripts/helm_chart.py."""
    return load_script(SCRIPTS / "kustomize_files.py"), load_script(SCRIPTS / "helm_chart.py")


@pytest.fixture(scope="session")
def crd_schemas() -> CustomResources:
    """Schemas of custom resources, from the folder that $PILOTFISH_CRD_DIR names; skips without."""
    folder = os.environ.get("PILOTFISH_CRD_DIR")
    if not folder:
        pytest.skip("PILOTFISH_CRD_DIR names no folder with schemas of custom resources")
    return custom_resources(Path(folder))


class Helm:
    """Runs both majors; what they render is kept."""

    def __init__(self, programs: dict[str, Path], home: Path) -> None:
        self._programs = programs
        self._home = home
        self.objects = lru_cache(maxsize=None)(self._objects)

    def run(self, major: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command; its status is the caller's business."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._home)}
        command = [str(self._programs[major]), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, env=environment)

    def template(self, *arguments: str, major: str = "helm4") -> Objects:
        """The objects of release `pilotfish` in namespace `llm`."""
        done = self.run(major, "template", "pilotfish", str(CHART), "--namespace", "llm", *arguments)
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]

    def refusal(self, *arguments: str, major: str = "helm4") -> str:
        """What is said of values that are refused."""
        done = self.run(major, "template", "pilotfish", str(CHART), "--namespace", "llm", *arguments)
        assert done.returncode != 0, "these values were not refused"
        return done.stderr

    def _objects(self, case: str, extras: bool, major: str = "helm4") -> Objects:
        return self.template(*value_files(case, extras), major=major)


def value_files(case: str, extras: bool) -> list[str]:
    """Arguments for a case of the matrix."""
    names = [*["extras"] * extras, *["gpu"] * (case in OVER_GPU), case]
    return [argument for name in names for argument in ("--values", str(CHART / "ci" / f"{name}-values.yaml"))]


@pytest.fixture(scope="session")
def helm(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(programs, tmp_path_factory.mktemp("helm-home"))


def only(objects: Objects, kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of a kind, and of a name if several have the kind."""
    found = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]
