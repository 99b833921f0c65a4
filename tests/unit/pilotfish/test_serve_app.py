"""The composed Ray Serve application, without a Ray."""

import pytest

from pilotfish.errors import ConfigError
from pilotfish.serve_app import build, reason


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
