"""compose.yaml: valid, and what it says to the services is what they understand."""

import importlib.resources
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pilotfish.cli.roles import Role
from pilotfish.config import Config, load_config
from pilotfish.security.link_token import LinkToken

ROOT = Path(__file__).parents[2]
FILES = ("compose.yaml", "compose.gpu.yaml")
SERVICES = ("target", "draft", "orchestrator")
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(:-(?P<default>[^}]*))?\}")


def load(name: str) -> dict[str, Any]:
    """As Compose reads it where none of the variables is set."""
    text = _VARIABLE.sub(lambda match: match["default"] or "", (ROOT / name).read_text(encoding="utf-8"))
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load("compose.yaml")["services"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_it_is_a_compose_file(name: str) -> None:
    schemas = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text(encoding="utf-8"))
    errors = jsonschema.validators.validator_for(schema)(schema).iter_errors(load(name))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_runs_one_role_locked_up_and_asks_after_it(name: str) -> None:
    service = services()[name]
    assert service["command"] == ["service", Role(name)]
    assert service["healthcheck"]["test"] == ["CMD", "pilotfish", "health", Role(name)]
    assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"])
    assert "links:/var/lib/pilotfish/links:ro" in service["volumes"]
    # For requests, then five seconds for the engine.
    assert int(service["stop_grace_period"].removesuffix("s")) > Config().deployment.orchestrator.drain_s + 5


def test_the_services_understand_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dict(services()["target"]["environment"])
    settings |= load("compose.gpu.yaml")["services"]["target"]["environment"]
    for name, value in settings.items():
        monkeypatch.setenv(name, value or "")
    config = load_config(ROOT / "docker" / "pilotfish.yaml")
    assert (config.target.model, config.draft.drafter) == ("smollm2-135m-instruct", "suffix")
    assert config.target.engine.device == "cuda"
    assert config.telemetry.otlp_endpoint == ""


def test_prometheus_scrapes_what_is_served() -> None:
    scraped = yaml.safe_load((ROOT / "docker" / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    (job,) = scraped["scrape_configs"]
    config = load_config(ROOT / "docker" / "pilotfish.yaml")
    assert job["static_configs"][0]["targets"] == [
        f"orchestrator:{config.orchestrator.http_port}",
        f"target:{config.target.metrics_port}",
        f"draft:{config.draft.metrics_port}",
    ]


def test_the_token_is_one_that_services_take(tmp_path: Path) -> None:
    service = services()["link-token"]
    (tmp_path / "links").mkdir()
    for _ in range(2):
        subprocess.run([*service["entrypoint"], *service["command"]], cwd=tmp_path, check=True, timeout=20)
    token = tmp_path / "links" / "token"
    assert len(LinkToken(str(token)).shown) >= 32
    assert token.stat().st_mode & 0o777 == 0o600
