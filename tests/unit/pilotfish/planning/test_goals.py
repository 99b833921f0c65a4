from __future__ import annotations

from array import array

import pytest

from pilotfish.errors import ConfigError
from pilotfish.planning.fleet import Outcome
from pilotfish.planning.goals import Goals


def test_goals_hold_for_a_share() -> None:
    outcome = Outcome()
    outcome.first_token_s = array("d", [0.1] * 94 + [2.0] * 6)
    outcome.token_s = array("d", [0.01] * 100)
    assert not Goals().are_met(outcome)
    assert Goals(share=0.9).are_met(outcome)
    assert not Goals(share=0.9, token_s=0.009).are_met(outcome)


@pytest.mark.parametrize("changes", [{"first_token_s": 0}, {"token_s": -1}, {"share": 1.0}])
def test_impossible_goals_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Goals(**changes)


def test_said_in_words() -> None:
    assert str(Goals()) == "first token within 1000 ms and 50 ms a token for 95% of the requests"
