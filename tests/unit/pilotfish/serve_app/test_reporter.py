"""What Serve says of a deployment, in one line."""

import pytest

from pilotfish.serve_app.reporter import reason


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
