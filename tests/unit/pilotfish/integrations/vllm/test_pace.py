"""Waiting no longer than a step, and asking only where it pays."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.pace import Pace

STEP_S = 0.02


def run(pace: Pace, num_steps: int, *, tokens: float, wait_s: float, num_rows: int = 1) -> list[bool]:
    """Steps of an engine whose drafts yield so many tokens a row; what was asked for."""
    asked = []
    for _ in range(num_steps):
        wants = pace.wants_drafts(num_rows)
        asked.append(wants)
        pace.add_step(
            num_rows,
            STEP_S,
            round(num_rows * (tokens if wants else 1)),
            num_draft_tokens=4 * wants,
            wait_s=wait_s if wants else 0.0,
            was_asked=wants,
        )
    return asked


def test_a_step_waits_as_long_as_a_plain_one_takes() -> None:
    pace = Pace(0.0, is_measuring=True)
    pace.add_step(1, STEP_S, 1, num_draft_tokens=0, wait_s=0.0, was_asked=False)
    pace.add_step(1, 9.0, 5, num_draft_tokens=4, wait_s=0.0, was_asked=True)
    assert pace.deadline_s(1) == STEP_S


def test_a_configured_deadline_holds() -> None:
    pace = Pace(0.005, is_measuring=True)
    pace.add_step(1, STEP_S, 1, num_draft_tokens=0, wait_s=0.0, was_asked=False)
    assert pace.deadline_s(1) == 0.005


def test_before_any_measurement_a_step_waits_a_little() -> None:
    assert 0 < Pace(0.0, is_measuring=True).deadline_s(8) < 0.1


def test_drafts_that_pay_are_asked_for_but_for_rare_plain_steps() -> None:
    pace = Pace(0.0, is_measuring=True)
    asked = run(pace, 1000, tokens=3, wait_s=0.002)
    assert 0.98 < sum(asked) / len(asked) < 1
    assert pace.num_pauses == 0


def test_a_plain_step_that_cannot_be_measured_is_one_step() -> None:
    pace = Pace(0.0, is_measuring=True)
    asked = [pace.wants_drafts(8) for _ in range(1000)]
    assert sum(asked) > 0.98 * len(asked)


def test_drafts_that_cost_more_than_they_yield_are_soon_asked_for_rarely() -> None:
    pace = Pace(0.0, is_measuring=True)
    asked = run(pace, 4000, tokens=1, wait_s=0.015)
    assert sum(asked) / len(asked) < 0.1
    assert pace.num_pauses > 1


def test_what_begins_to_pay_is_found_out() -> None:
    pace = Pace(0.0, is_measuring=True)
    run(pace, 1000, tokens=1, wait_s=0.015)
    asked = run(pace, 4000, tokens=3, wait_s=0.002)
    assert sum(asked[-1000:]) / 1000 > 0.98


def test_without_measuring_every_step_asks() -> None:
    pace = Pace(0.0, is_measuring=False)
    assert all(run(pace, 500, tokens=1, wait_s=0.015))


@pytest.mark.parametrize("num_rows", [1, 8])
def test_batches_of_other_sizes_are_measured_by_themselves(num_rows: int) -> None:
    pace = Pace(0.0, is_measuring=True)
    pace.add_step(num_rows, STEP_S, num_rows, num_draft_tokens=0, wait_s=0.0, was_asked=False)
    other = 8 if num_rows == 1 else 1
    pace.add_step(other, 3 * STEP_S, other, num_draft_tokens=0, wait_s=0.0, was_asked=False)
    assert pace.deadline_s(num_rows) == STEP_S
    assert pace.deadline_s(other) == 3 * STEP_S
