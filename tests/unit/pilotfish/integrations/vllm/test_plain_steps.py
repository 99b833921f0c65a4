"""What steps without drafts take."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.plain_steps import PlainSteps


def test_before_the_first_nothing_is_known() -> None:
    plain = PlainSteps()
    assert (plain.is_known, plain.median_s, plain.average_s) == (False, 0.0, 0.0)


def test_slow_steps_move_the_average_and_not_the_median() -> None:
    plain = PlainSteps()
    for step in range(60):
        plain.add(0.03 if step % 3 else 0.06)
    assert plain.is_known
    assert plain.median_s == pytest.approx(0.03)
    assert 0.034 < plain.average_s < 0.055
