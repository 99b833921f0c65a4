"""What is believed of drafts that were not made yet."""

from __future__ import annotations

import random

import pytest

from orchestrator.control.acceptance import ProposerAcceptance, RequestAcceptance

K = 4


def num_accepted(rng: random.Random, acceptance: float) -> int:
    return next((n for n in range(K) if rng.random() >= acceptance), K)


def shared(acceptance: float, num_rounds: int = 2000) -> ProposerAcceptance:
    """What is known after so many rounds of a request whose drafts are accepted so."""
    proposer, rng = ProposerAcceptance(), random.Random(1)
    request = RequestAcceptance(proposer)
    for _ in range(num_rounds):
        request.add(K, num_accepted(rng, acceptance), is_probe=False)
    return proposer


def of(request: RequestAcceptance, proposer: ProposerAcceptance) -> tuple[float, ...]:
    return request.probabilities(proposer.probabilities(K))


@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.9])
def test_a_new_request_believes_what_all_know(acceptance) -> None:
    proposer = shared(acceptance)
    assert of(RequestAcceptance(proposer), proposer) == pytest.approx([acceptance] * K, abs=0.1)


def test_positions_are_told_apart_given_that_they_were_reached() -> None:
    """Of 400 drafts each first token holds, each second one every other time, and no third one."""
    proposer = ProposerAcceptance()
    request = RequestAcceptance(proposer)
    for number in range(400):
        request.add(K, 1 + number % 2, is_probe=False)
    assert proposer.probabilities(3) == pytest.approx([1.0, 0.5, 0.0], abs=0.06)
    assert of(request, proposer)[:3] == pytest.approx([1.0, 0.5, 0.0], abs=0.06)


def test_a_position_that_was_never_drafted_is_like_the_one_before_it() -> None:
    proposer = ProposerAcceptance()
    request = RequestAcceptance(proposer)
    for _ in range(400):
        request.add(2, 2, is_probe=False)
    assert proposer.probabilities(8) == pytest.approx([1.0] * 8, abs=0.02)
    assert len(of(request, proposer)) == K


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.1), (0.1, 0.9)])
def test_another_text_is_noticed(before, after) -> None:
    proposer = shared(before)
    request, rng = RequestAcceptance(proposer), random.Random(3)
    for _ in range(100):
        request.add(K, num_accepted(rng, before), is_probe=False)
    for _ in range(150):
        request.add(K, num_accepted(rng, after), is_probe=False)
    assert of(request, proposer)[0] == pytest.approx(after, abs=0.25)
