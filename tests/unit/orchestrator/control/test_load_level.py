"""Promises under one load: when they are held against what was got."""

from __future__ import annotations

import pytest

from orchestrator.control.load_level import LoadLevel


def level() -> LoadLevel:
    """One that promises 100 tokens a second to a sequence."""
    subject = LoadLevel()
    subject.expected_tokens_per_s = 100.0
    return subject


def measure(subject: LoadLevel, num_rounds: int) -> None:
    for _ in range(8):
        subject.add_share(1.0)
    for _ in range(num_rounds):
        assert subject.takes_round(1)
        subject.add_round(1.5, 4, 1)


def get_half(subject: LoadLevel) -> None:
    for _ in range(4096):
        subject.add_tokens(1, 0.02, 1)


def test_what_is_expected_before_rounds_were_measured_is_no_promise() -> None:
    subject = level()
    get_half(subject)
    assert subject.achieved.ratio == 1
    measure(subject, 20)
    get_half(subject)
    assert subject.achieved.ratio == pytest.approx(0.7)


def test_another_try_is_due_when_it_was_long_waited_for() -> None:
    subject = level()
    assert not subject.is_retry_due, "the first one is none"
    measure(subject, 20)
    subject.count_plain_tokens(511, 1)
    assert not subject.is_retry_due
    subject.count_plain_tokens(1, 1)
    assert subject.is_retry_due
    assert not subject.is_measured


def test_another_try_believes_half_and_promises_nothing_until_rounds_were_measured_again() -> None:
    subject = level()
    measure(subject, 20)
    get_half(subject)
    subject.count_plain_tokens(512, 1)
    assert subject.achieved.ratio == pytest.approx(0.85)
    get_half(subject)
    assert subject.achieved.ratio == pytest.approx(0.85)
    measure(subject, 6)
    get_half(subject)
    assert subject.achieved.ratio == pytest.approx(0.7)
