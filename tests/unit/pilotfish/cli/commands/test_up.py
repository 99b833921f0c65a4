"""`pilotfish up --emulate`: what is checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pilotfish.cli.commands import up as command
from pilotfish.cli.main import app
from pilotfish.config import Config
from pilotfish.emulation.profiles import load_profile, profile_to_yaml
from pilotfish.launch.specs import prepare

runner = CliRunner()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Configurations that services were started with."""
    configs: list[Config] = []

    async def run_services(config: Config, **_: object) -> None:
        configs.append(config)

    monkeypatch.setattr(command, "run_services", run_services)
    monkeypatch.setattr(command, "pull_with_progress", lambda *_: pytest.fail("nothing is to be fetched"))
    return configs


def up(*arguments: str) -> Result:
    return runner.invoke(app, ["up", "--set", "orchestrator.port=0", *arguments])


def test_a_profile_is_announced_and_nothing_is_fetched(started: list[Config]) -> None:
    result = up("--emulate", "a100-70b")
    assert result.exit_code == 0, result.output
    assert "EMULATED hardware a100-70b" in result.output
    assert started[0].emulation.profile == "a100-70b"


def test_a_file_is_found_from_anywhere(started: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(profile_to_yaml(load_profile("instant")))
    monkeypatch.chdir(tmp_path)
    assert up("--emulate", "mine.yaml").exit_code == 0
    launch = prepare(started[0], tmp_path, standalone=True)  # services under Ray run in folders of their own
    assert launch.config.emulation.profile == str(tmp_path / "mine.yaml")


@pytest.mark.parametrize("how", [(), ("--standalone",)])
def test_ports_that_are_not_used_are_told(started: list[Config], how: tuple[str, ...]) -> None:
    emulated = ("--emulate", "a100-70b", *how)
    result = up(*emulated, "--set", "target.port=7001", "--set", "draft.port=7002")
    assert "target.port and draft.port not used: `pilotfish up` takes free ports" in " ".join(result.output.split())
    result = up(*emulated, "--set", "draft.port=7002")
    assert "draft.port not used" in result.output
    assert "target.port" not in result.output
    assert "not used" not in up(*emulated, "--set", "target.port=0").output  # any free one is what it gets


def test_an_unknown_profile_starts_nothing(started: list[Config]) -> None:
    result = up("--emulate", "h900")
    assert result.exit_code == 1
    assert "a100-70b" in result.output
    assert not started
