"""Where the demo's drafters come from."""

import pytest
from typer.testing import CliRunner

from pilotfish.cli.commands import demo
from pilotfish.cli.main import app
from pilotfish.config import Config

OWN_MODEL = ("target.model=./my-model", "target.drafter.proposer=eagle3", "target.drafter.model=./my-head")


@pytest.mark.parametrize(
    ("settings", "proposer", "head"),
    [
        ((), "eagle3", "smollm2-135m-instruct-eagle3"),
        (OWN_MODEL, "eagle3", "my-head"),
        (("target.drafter.proposer=medusa",), "medusa", "smollm2-135m-instruct-medusa"),
        (("target.model=./my-model",), "auto", ""),
        (("draft.num_replicas=0",), "auto", ""),
        (("draft.proposer=suffix",), "suffix", ""),
    ],
    ids=["default", "own", "medusa", "none", "no pool", "another"],
)
def test_the_head_in_the_target_is_in_the_pool_as_well(
    monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], proposer: str, head: str
) -> None:
    """Wherever the target's comes from; unless something else is configured there, or nothing is to run."""
    started: list[Config] = []
    monkeypatch.setattr(demo, "find_running", lambda *_: None)
    monkeypatch.setattr(demo, "require_free", lambda *_: None)
    monkeypatch.setattr(demo, "pull_models", started.append)
    monkeypatch.setattr(demo.asyncio, "run", lambda coroutine: coroutine.close())
    monkeypatch.setattr(demo, "_emulate", lambda *_: None)
    result = CliRunner().invoke(app, ["demo", *(part for each in settings for part in ("--set", each))])
    assert result.exit_code == 0, result.output
    (config,) = started
    assert config.draft.proposer == proposer
    assert config.draft.head.rpartition("/")[2] == head
