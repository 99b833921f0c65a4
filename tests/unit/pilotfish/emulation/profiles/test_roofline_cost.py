"""The roofline: flat while the weights bound a step, linear once the arithmetic does."""

from __future__ import annotations

import pytest

from pilotfish.emulation.profiles import RooflineCost
from pilotfish.errors import ConfigError

COST = RooflineCost(weights_s=8.0, token_s=0.1, context_token_s=0.01, overhead_s=1.0)


def test_few_rows_wait_for_the_weights() -> None:
    assert COST.step_s(1, 1) == COST.step_s(8, 80) == 9.0


def test_many_rows_wait_for_the_arithmetic() -> None:
    assert COST.step_s(1, 160) == pytest.approx(17.0)


def test_negative_times_are_refused() -> None:
    with pytest.raises(ConfigError, match="token_s"):
        RooflineCost(weights_s=1.0, token_s=-1.0)
