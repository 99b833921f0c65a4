"""Where the cache is, as the environment says."""

import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.config import Config, default_cache_dir, load_config, service_environment, setting_variables
from pilotfish.errors import ConfigError


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PILOTFISH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_cache_dir() == "/home/ann/.cache/pilotfish"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache_dir() == "/xdg/pilotfish"
    monkeypatch.setenv("PILOTFISH_CACHE", "/mine")
    assert default_cache_dir() == "/mine"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing about the configuration."""
    for name in (*setting_variables(), "PILOTFISH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_variables_override_the_file_and_options_override_them(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pilotfish.yaml"
    file.write_text("target: {model: from-file, port: 1}\ndraft:\nlog_level: ERROR\n")
    clean.setenv("PILOTFISH_CONFIG", str(file))
    clean.setenv("PILOTFISH__TARGET__MODEL", "from-environment")
    clean.setenv("PILOTFISH__DRAFT__ENGINE__MAX_SEQUENCES", "3")
    clean.setenv("PILOTFISH__ORCHESTRATOR__TARGET_ADDRESSES", "[a:1, b:2]")
    clean.setenv("PILOTFISH__LOG_LEVEL", "")  # as templates leave them: absent
    config = load_config(overrides=["target.port=2"])
    assert (config.target.model, config.target.port, config.log_level) == ("from-environment", 2, "ERROR")
    assert config.draft.engine.max_sequences == 3
    assert config.orchestrator.target_addresses == ("a:1", "b:2")
    other = tmp_path / "other.yaml"
    other.write_text("")
    assert load_config(other).log_level == "INFO"


def test_a_wrong_variable_is_named(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("PILOTFISH__TARGET__PROT", "1")
    with pytest.raises(ConfigError, match=r"\$PILOTFISH__TARGET__PROT: target\.prot: .* did you mean port\?"):
        load_config()
    clean.setenv("PILOTFISH__TARGET__PROT", "[")
    with pytest.raises(ConfigError, match=r"^\$PILOTFISH__TARGET__PROT: '\[' is not a YAML value"):
        load_config()


def test_what_kubernetes_puts_beside_a_service_called_pilotfish_is_not_ours(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("PILOTFISH_PORT", "tcp://10.0.0.1:50051")
    clean.setenv("PILOTFISH_TARGET_SERVICE_HOST", "10.0.0.2")
    assert load_config(overrides=["cache_dir=/mine"]) == Config(cache_dir="/mine")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe\x00target", "is not YAML"),
        (b"- a\n", "must hold a mapping"),
        (b"a:\n  - [\n", r"is not YAML: line 3, column 1: "),
    ],
)
def test_a_file_that_is_no_configuration(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        load_config(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match="cannot read configuration"):
        load_config(tmp_path)


def test_a_service_has_its_variables_unless_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    monkeypatch.setenv("PILOTFISH_CONFIG", "a.yaml")
    ours = service_environment(without=["PILOTFISH_CONFIG"])
    assert "event_engine_client" in ours["GRPC_EXPERIMENTS"]
    assert "PILOTFISH_CONFIG" not in ours
    monkeypatch.setenv("GRPC_EXPERIMENTS", "none")
    assert service_environment()["GRPC_EXPERIMENTS"] == "none"


def test_the_grpc_that_is_installed_knows_a_services_variables() -> None:
    code = "import grpc; grpc.insecure_channel('localhost:1').close()"
    environment = {**service_environment(), "GRPC_VERBOSITY": "error"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
