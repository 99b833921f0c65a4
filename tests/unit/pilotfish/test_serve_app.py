"""The composed Ray Serve application, without a Ray."""

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError
from pilotfish.serve_app import build, reason, share_gpus


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Traceback\n  File x\npilotfish.errors.UnavailableError: port 9 is taken\n\n", "port 9 is taken"),
        ("ValueError: two: parts", "ValueError: two: parts"),
        ("", "no reason given"),
    ],
)
def test_reason_is_the_exceptions_own_message(message: str, said: str) -> None:
    assert reason(message) == said


def test_wrong_args_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"target\.colour"):
        build({"target": {"colour": "blue"}})


def test_replicas_share_the_gpus_there_are() -> None:
    config = load_config(
        overrides=[
            "target.engine.device=cuda",
            "draft.engine.device=cuda",
            "draft.proposer=model",
            "draft.num_replicas=2",
        ]
    )
    assert share_gpus(config, 8) == 1.0
    assert share_gpus(config, 1) == 0.33
    with pytest.raises(ConfigError, match="no GPU"):
        share_gpus(config, 0)


def test_prompt_lookup_needs_no_gpu() -> None:
    assert share_gpus(load_config(overrides=["draft.engine.device=cuda"]), 0) == 1.0
