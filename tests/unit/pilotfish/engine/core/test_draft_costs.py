from __future__ import annotations

import random

import pytest

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds


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
    after = subject.thresholds()
    assert (after.round, after.node) == (pytest.approx(before.round, rel=0.02), pytest.approx(before.node, rel=0.02))


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(65, 65), (512, 1), (40, 0)])
def test_drafts_beside_steps_that_are_left_out_count_no_more_than_these(num_rows: int, num_tokens: int) -> None:
    """Their time without the steps' tokens had thresholds sink for ever under load, and everything was drafted."""
    subject = costs(step_s=0.01, row_s=0.0002, round_s=0.008)
    before = subject.thresholds()
    assert before.round > 0.4
    lowest = before.round
    for _ in range(10_000):
        subject.add_step(num_rows, 0.05, num_tokens)
        subject.add_draft(4, 0.032)
        lowest = min(lowest, subject.thresholds().round)
    assert lowest > 0.05
    assert subject.thresholds() == Thresholds(), "what was measured is long past"


def test_what_was_measured_before_a_load_is_soon_outweighed_after_it() -> None:
    subject = costs(step_s=0.01, row_s=0.0002, round_s=0.008)
    for _ in range(300):
        subject.add_step(100, 0.05, 100)
        subject.add_draft(1, 0.01)
    for _ in range(30):
        subject.add_step(4, 0.01, 2)
        subject.add_draft(2, 0.002)
    other = costs(step_s=0.01, row_s=0.0, round_s=0.001).thresholds()
    assert subject.thresholds().round == pytest.approx(other.round, rel=0.2)


def test_drafts_among_loads_and_single_sequences() -> None:
    """Every other step is left out, with its drafts: the others say the same as alone."""
    alone, mixed = DraftCosts(), DraftCosts()
    for _ in range(300):
        for subject in (alone, mixed):
            subject.add_step(4, 0.01, 2)
            subject.add_draft(2, 0.006)
        mixed.add_step(100, 0.05, 100)
        mixed.add_draft(2, 0.06)
    assert mixed.thresholds().round == pytest.approx(alone.thresholds().round, rel=0.2)
