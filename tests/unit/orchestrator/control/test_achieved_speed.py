from __future__ import annotations

import pytest

from orchestrator.control.achieved_speed import AchievedSpeed


def after(num_rounds: int, num_tokens: int, num_expected: float, num_sequences: int = 1) -> float:
    achieved = AchievedSpeed()
    for _ in range(num_rounds):
        achieved.add(num_tokens, num_expected, num_sequences)
    return achieved.ratio


def test_a_promise_is_believed_at_first() -> None:
    assert AchievedSpeed().ratio == 1


def test_what_is_missing_is_learned() -> None:
    assert after(4096, 9, 10.0) == pytest.approx(0.9, abs=0.001)
    assert 0.95 < after(16, 9, 10.0) < 1, "but not from a few rounds"


def test_more_than_was_promised_promises_no_more() -> None:
    assert after(4096, 11, 10.0) == 1


def test_a_broken_promise_is_believed_to_a_limit() -> None:
    assert after(4096, 1, 10.0) == 0.7


def test_each_of_many_sequences_counts() -> None:
    """One bad moment of all of them is many rounds."""
    achieved = AchievedSpeed()
    for _ in range(4 * 8192):
        achieved.add(10, 10.0, 512)
    for _ in range(512):
        achieved.add(0, 10.0, 512)
    assert achieved.ratio > 0.93


def test_another_try_believes_half_of_what_was_missing() -> None:
    achieved = AchievedSpeed()
    for _ in range(4096):
        achieved.add(1, 10.0, 1)
    achieved.hope()
    assert achieved.ratio == pytest.approx(0.85)


def test_a_bad_second_does_not_outweigh_minutes() -> None:
    achieved = AchievedSpeed()
    for number in range(600):
        achieved.add(1 if number > 590 else 10, 500.0 if number > 590 else 10.0, 1)
    assert achieved.ratio == 0.7
    for _ in range(300):
        achieved.add(10, 10.0, 1)
    assert achieved.ratio > 0.75


def test_luck_is_not_saved_up() -> None:
    achieved = AchievedSpeed()
    for _ in range(4096):
        achieved.add(20, 10.0, 1)
    for _ in range(512):
        achieved.add(9, 10.0, 1)
    assert achieved.ratio < 0.97
