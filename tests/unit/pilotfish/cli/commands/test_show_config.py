"""`pilotfish config` prints YAML that loads again."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.config import config_from_dict, load_config

runner = CliRunner()


def test_printed_configuration_loads_as_the_effective_one(tmp_path: Path) -> None:
    printed = runner.invoke(app, ["config", "--set", "draft.num_replicas=3", "--set", "target.engine.num_threads=2"])
    assert printed.exit_code == 0
    path = tmp_path / "config.yaml"
    path.write_text(printed.stdout)
    loaded = load_config(path)
    assert loaded.draft.num_replicas == 3
    assert loaded.target.engine.num_threads == 2


def test_serve_form_carries_the_configuration_as_the_applications_args(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = runner.invoke(app, ["config", "--serve", "--set", "target.host=0.0.0.0"])
    assert printed.exit_code == 0
    target, draft, orchestrator = yaml.safe_load(printed.stdout)["applications"]
    assert target["import_path"] == "pilotfish.serve_app:build_target"
    assert draft["import_path"] == "pilotfish.serve_app:build_draft"
    assert orchestrator["import_path"] == "pilotfish.serve_app:build_orchestrator"
    assert "cache_dir" not in target["args"], "each machine has its own default"
    assert config_from_dict(target["args"]).target.host == "0.0.0.0"


@pytest.mark.parametrize("form", [(), ("--serve",)])
def test_json_says_the_same(form: tuple[str, ...]) -> None:
    arguments = ["config", *form, "--set", "draft.num_replicas=3"]
    printed = runner.invoke(app, [*arguments, "--json"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == yaml.safe_load(runner.invoke(app, arguments).stdout)
