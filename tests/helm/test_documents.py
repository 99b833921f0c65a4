"""What people copy works: the values and files that pages name, and the commands that pods run."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from pilotfish.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def test_the_values_of_the_page_render(helm: Any, tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    values = tmp_path / "values.yaml"
    values.write_text("\n".join(line.removeprefix("   ") for line in block.splitlines()))
    images = {
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in helm.template("--values", str(values))
        if each["kind"] == "Deployment"
    }
    assert images == {"registry.example.com/pilotfish:0.1.0"}


def test_the_draft_pool_for_vllm_renders(helm: Any) -> None:
    objects = helm.template("--values", str(ROOT / "examples" / "vllm" / "values.yaml"))
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"] == ["pilotfish-draft"]


@pytest.mark.parametrize(
    ("values", "name"),
    [("default", "pilotfish-test"), ("draft-pool", "pilotfish-test"), ("extras", "pilotfish-target")],
)
def test_pilotfish_understands_the_arguments_of_pods(helm: Any, values: str, name: str) -> None:
    (pod,) = (
        each["spec"].get("template", each)["spec"]
        for each in (helm.objects("default", True) if values == "extras" else helm.objects(values, False))
        if each["metadata"]["name"] == name and each["kind"] in ("Pod", "Deployment")
    )
    command, *arguments = pod["containers"][0]["args"]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with commands[command].make_context(command, arguments) as context:  # exits on wrong usage
        assert context.params
