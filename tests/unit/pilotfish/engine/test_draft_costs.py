from __future__ import annotations

import random

import pytest

from pilotfish.engine.draft_costs import DraftCosts, Thresholds


def costs(*, step_s: float, row_s: float, round_s: float, tokens: int = 2, noise: float = 0.0) -> DraftCosts:
    """After 300 steps of one sequence with drafts of several sizes."""
    chance = random.Random(1)
    subject = DraftCosts()
    for _ in range(300):
        rows, rounds = chance.randint(1, 16), chance.randint(1, 4)
        forward_s = step_s + (rows - 1) * row_s
        subject.add_step(rows, forward_s * (1 + noise * chance.uniform(-1, 1)), tokens)
        subject.add_draft(rounds, rounds * round_s)
    return subject


def test_nothing_measured_nothing_changed() -> None:
    subject = DraftCosts()
    assert subject.thresholds() == Thresholds()
    subject.add_step(3, 0.0, 1)  # a clock that stands still
    subject.add_draft(1, 0.0)
    assert subject.thresholds() == Thresholds()


def test_what_costs_more_must_promise_more() -> None:
    step_s, row_s, round_s = 0.010, 0.0002, 0.001
    found = costs(step_s=step_s, row_s=row_s, round_s=round_s).thresholds()
    # 7.5 further rows and 2.5 rounds a step on average, and two tokens out of it
    tokens_per_s = 2 / (step_s + 7.5 * row_s + 2.5 * round_s)
    assert found.round == pytest.approx(round_s * tokens_per_s, rel=0.15)
    assert found.node == pytest.approx(row_s * tokens_per_s, rel=0.15)
    assert costs(step_s=step_s, row_s=5 * row_s, round_s=round_s).thresholds().node > 3 * found.node
    assert costs(step_s=step_s, row_s=row_s, round_s=5 * round_s).thresholds().round > 2 * found.round


def test_a_noisy_machine_is_no_reason_to_stop_or_to_run_wild() -> None:
    found = costs(step_s=0.01, row_s=0.0002, round_s=0.001, noise=0.5).thresholds()
    assert 0.005 <= found.node < 0.12
    assert 0.05 < found.round < 0.4


def test_rounds_that_cost_nothing_and_rounds_that_cost_a_step() -> None:
    assert costs(step_s=0.01, row_s=0.0, round_s=0.0).thresholds() == Thresholds(
        round=pytest.approx(0.02, abs=0.03), node=pytest.approx(0.005, abs=0.002)
    )
    assert costs(step_s=0.01, row_s=0.01, round_s=0.1).thresholds().round == pytest.approx(0.57, abs=0.06)


def test_prefills_do_not_count() -> None:
    subject = costs(step_s=0.01, row_s=0.0002, round_s=0.001)
    before = subject.thresholds()
    subject.add_step(512, 3.0, 1)
    subject.add_step(40, 0.3, 0)  # a chunk of a prefill, no token yet
    assert subject.thresholds() == before
