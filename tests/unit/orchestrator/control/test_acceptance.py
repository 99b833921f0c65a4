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


def test_before_any_draft_drafts_are_worth_a_try() -> None:
    assert ProposerAcceptance().probabilities(K) == (0.6,) * K


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


def test_the_luck_of_a_few_rounds_moves_a_request_little() -> None:
    beliefs = []
    proposer = shared(0.7)
    for seed in range(20):
        request, rng = RequestAcceptance(proposer), random.Random(seed)
        for _ in range(16):
            request.add(K, num_accepted(rng, 0.7), is_probe=False)
        beliefs.append(of(request, proposer)[0])
    assert max(abs(belief - 0.7) for belief in beliefs) < 0.15


def test_a_request_that_differs_for_long_is_believed() -> None:
    proposer = shared(0.8)
    odd, other = RequestAcceptance(proposer), RequestAcceptance(proposer)
    for _ in range(200):
        odd.add(K, 0, is_probe=False)
        for _ in range(9):
            other.add(K, K, is_probe=False)
    assert of(odd, proposer)[0] < 0.3
    assert of(other, proposer)[0] > 0.85


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.1), (0.1, 0.9)])
def test_another_text_is_noticed(before, after) -> None:
    proposer = shared(before)
    request, rng = RequestAcceptance(proposer), random.Random(3)
    for _ in range(100):
        request.add(K, num_accepted(rng, before), is_probe=False)
    for _ in range(150):
        request.add(K, num_accepted(rng, after), is_probe=False)
    assert of(request, proposer)[0] == pytest.approx(after, abs=0.25)


def test_a_probe_says_more_than_a_round() -> None:
    """It stands for all rounds that were not drafted."""
    by_probe = {}
    for is_probe in (False, True):
        proposer = shared(0.05)
        request = RequestAcceptance(proposer)
        for _ in range(4):
            request.add(2, 2, is_probe=is_probe)
        by_probe[is_probe] = of(request, proposer)[0]
    assert by_probe[True] > by_probe[False] + 0.2


def test_empty_proposals_and_the_tokens_after_them_are_counted() -> None:
    proposer = ProposerAcceptance()
    assert (proposer.empty_share, proposer.empty_run_tokens) == (0.0, 1.0)
    for number in range(1000):
        proposer.add_proposal(0 if number % 4 else 8)
    assert proposer.empty_share == pytest.approx(0.25, abs=0.02)
    assert proposer.empty_run_tokens == pytest.approx(8, abs=0.2)
