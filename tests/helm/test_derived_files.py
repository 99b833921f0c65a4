"""What is derived from the chart, and what the chart is derived from, is current: `make chart` writes it anew."""

import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "pilotfish"


def test_files_are_current(chart_scripts: tuple[ModuleType, ModuleType], programs: dict[str, Path]) -> None:
    _, helm_chart = chart_scripts
    expected = dict(helm_chart.derived_files(programs["helm4"]))
    stale = [str(path.relative_to(ROOT)) for path, content in expected.items() if path.read_text() != content]
    assert stale == []
    kept = {path for part in ("base", "overlays") for path in (ROOT / "k8s" / part).rglob("*.yaml")}
    assert kept <= set(expected), "files of objects that the chart no longer has"


@pytest.mark.parametrize("name", ["base", "cpu-kind", "gpu", "rayservice", "draft-pool"])
def test_kustomize_builds_what_helm_renders(
    chart_scripts: tuple[ModuleType, ModuleType], programs: dict[str, Path], name: str
) -> None:
    kustomize_files, helm_chart = chart_scripts
    folder = ROOT / "k8s" / ("base" if name == "base" else f"overlays/{name}")
    done = subprocess.run([programs["kubectl"], "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    built = [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]
    rendered = helm_chart.render(programs["helm4"], helm_chart.BASE if name == "base" else name)
    assert {(each["kind"], each["metadata"]["name"]): each for each in built} == kustomize_files.by_name(rendered)


def test_the_readme_is_current(kubernetes_tools: ModuleType, tmp_path: Path) -> None:
    try:
        generator = kubernetes_tools.fetch_generator(kubernetes_tools.tools_folder())
    except kubernetes_tools.ToolError as error:
        pytest.skip(f"no README generator: {error}")
    readme = tmp_path / "README.md"
    shutil.copy(CHART / "README.md", readme)
    command = [*generator, "-v", str(CHART / "values.yaml"), "-r", str(readme)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert readme.read_text() == (CHART / "README.md").read_text()
