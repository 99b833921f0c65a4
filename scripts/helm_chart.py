"""Write what is derived from the Helm chart, and what it is derived from: `make chart`.

- `files/`: the alerts and the dashboard of observability/.
- `values.schema.json`: the definitions of `config`, from pilotfish/config.
- `README.md`: the table of values, by Bitnami's generator.
- `k8s/`: a kustomize base and overlays that are the rendered chart.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes_tools import ToolError, fetch_generator, fetch_programs, tools_folder
from kustomize_files import kustomize_files
from pydantic import TypeAdapter

from pilotfish.config import Config

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "pilotfish"
KUSTOMIZE = ROOT / "k8s"
COPIES = {
    "observability/alerts.yaml": "files/alerts.yaml",
    "observability/grafana/pilotfish.json": "files/dashboard.json",
}
"""A chart cannot read what lies outside of it."""
BASE = "default"
OVERLAYS = ("cpu-kind", "gpu", "rayservice", "draft-pool")
"""Names of values in ci/: what the base and the overlays of k8s/ are."""
RELEASE = NAMESPACE = "pilotfish"


def schema_with_config(schema: Mapping[str, Any]) -> dict[str, Any]:
    """values.schema.json with today's definitions of Pilotfish's configuration."""
    own = {name: value for name, value in schema["definitions"].items() if name == "pool"}
    generated = TypeAdapter(Config).json_schema(mode="validation")
    definitions = {"Config": generated, **generated.pop("$defs")}
    return {**schema, "definitions": {**own, **{name: _draft_07(each) for name, each in sorted(definitions.items())}}}


def _draft_07(schema: Any) -> Any:
    """In the draft that both majors of Helm know, without defaults (that of a folder depends on the machine)."""
    if isinstance(schema, list):
        return [_draft_07(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: _draft_07(each) for name, each in value.items()}
        elif key == "$ref":
            result[key] = value.replace("#/$defs/", "#/definitions/")
        elif key == "prefixItems":
            result["items"] = _draft_07(value)
        elif key not in ("default", "title", "description"):
            result[key] = _draft_07(value)
    if words := {"on", "off"} & set(result.get("enum", ())):
        # Helm's YAML reads them as booleans, and Pilotfish reads those as the words.
        # Sorted: Literals of the same words in another order are one to `typing`, whichever came first.
        result = {"enum": [*sorted(result["enum"]), *sorted(word == "on" for word in words)]}
    return result


def render(helm: Path, values: str) -> list[dict[str, Any]]:
    """The objects of the chart with ci/VALUES-values.yaml, without tests."""
    command = [str(helm), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--no-hooks"]
    command += ["--values", str(CHART / "ci" / f"{values}-values.yaml")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [each for each in yaml.safe_load_all(output) if each]


def derived_files(helm: Path) -> Iterator[tuple[Path, str]]:
    """(path, content) of everything but the README."""
    for source, copy in COPIES.items():
        yield CHART / copy, (ROOT / source).read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    yield CHART / "values.schema.json", json.dumps(schema_with_config(schema), indent=2) + "\n"
    overlays = {name: render(helm, name) for name in OVERLAYS}
    for path, content in kustomize_files(render(helm, BASE), overlays).items():
        yield KUSTOMIZE / path, content


def main() -> int:
    folder = tools_folder()
    try:
        helm = fetch_programs(folder)["helm4"]
        for part in ("base", "overlays"):
            shutil.rmtree(KUSTOMIZE / part, ignore_errors=True)
        for path, content in derived_files(helm):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        generator = fetch_generator(folder)
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    subprocess.run([*generator, "-v", str(CHART / "values.yaml"), "-r", str(CHART / "README.md")], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
