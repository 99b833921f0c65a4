"""`pilotfish serve`: what is checked before anything starts."""

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pilotfish.cli.commands import serve as command
from pilotfish.cli.main import app
from pilotfish.config import Config

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


def serve(*arguments: str) -> Result:
    return runner.invoke(app, ["serve", "--set", "orchestrator.port=0", *arguments])


def test_a_profile_is_announced_and_nothing_is_fetched(started: list[Config]) -> None:
    result = serve("--emulate", "a100-70b")
    assert result.exit_code == 0, result.output
    assert "EMULATED hardware a100-70b" in result.output
    assert started[0].emulation.profile == "a100-70b"


@pytest.mark.parametrize("how", [(), ("--ray",)])
def test_ports_that_are_not_used_are_told(started: list[Config], how: tuple[str, ...]) -> None:
    emulated = ("--emulate", "a100-70b", *how)
    result = serve(*emulated, "--set", "target.port=7001", "--set", "draft.port=7002")
    assert "target.port and draft.port not used: `pilotfish serve` takes free ports" in " ".join(result.output.split())
    result = serve(*emulated, "--set", "draft.port=7002")
    assert "draft.port not used" in result.output
    assert "target.port" not in result.output
    assert "not used" not in serve(*emulated, "--set", "target.port=0").output  # any free one is what it gets


@pytest.mark.parametrize(
    "settings",
    [
        ("target.drafter.proposer=eagle3", "target.drafter.model=org/head"),
        ("draft.proposer=eagle3", "draft.head=org/head"),
    ],
)
def test_a_head_that_is_not_here_is_named_before_a_model_is_fetched(
    started: list[Config], settings: tuple[str, ...]
) -> None:
    result = serve("org/model", *(word for setting in settings for word in ("--set", setting)))
    assert result.exit_code == 1
    told = " ".join(result.output.split())
    assert "'org/head' is no folder of a draft head" in told
    assert "hf download ORG/HEAD --local-dir FOLDER" in told
    assert not started


def test_up_is_the_same_command(started: list[Config]) -> None:
    assert runner.invoke(app, ["up", "--emulate", "a100-70b", "--set", "orchestrator.port=0"]).exit_code == 0
    assert started[0].emulation.profile == "a100-70b"


def test_several_replicas_need_ray(started: list[Config]) -> None:
    several = ("--emulate", "a100-70b", "--set", "target.num_replicas=2")
    assert "num_replicas needs --ray" in serve(*several).output
    assert "num_replicas needs --ray" not in serve(*several, "--ray").output


def test_the_drafters_are_named_in_the_order_in_which_they_are_asked(
    started: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "pull_with_progress", lambda *_: None)
    pool = ("--set", "draft.proposer=model", "--set", "orchestrator.speculation.lookup=ngram")
    output = " ".join(serve(*pool).output.split())
    assert "Drafts: model in the draft service, after ngram in the orchestrator." in output
