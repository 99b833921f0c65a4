"""What is known of drafts, and how far that holds for a drafter's new weights."""

import pytest

from orchestrator.control.acceptance import ProposerAcceptance, RequestAcceptance
from orchestrator.control.round_costs import RoundCosts
from pilotfish.step_table import StepTable


@pytest.mark.parametrize(("second_version", "share_left"), [(1, 0.5), (0, 0.9)])
def test_of_new_weights_less_is_known_but_not_nothing(second_version: int, share_left: float) -> None:
    """After as many rounds as are left of the old ones, half of the belief is still theirs."""
    shared = ProposerAcceptance()
    mine, others = (RequestAcceptance(shared) for _ in range(2))
    for each in (mine, others):
        for _ in range(1000):
            each.note(0, 3, 0.0)
            each.add(3, 3, is_probe=False)
    before = shared.probabilities(1)[0]
    mine.note(second_version, 3, 1.0)
    assert shared.probabilities(1)[0] == pytest.approx(before, abs=0.03)
    assert mine.probabilities((before,))[0] == pytest.approx(before, abs=0.03)
    for _ in range(32):
        others.add(3, 0, is_probe=False)
    assert shared.probabilities(1)[0] == pytest.approx(share_left, abs=0.06)
    # What another request knew of itself holds no further either.
    assert (others.probabilities((0.5,))[0] < 0.5) == (second_version == 1)


def test_a_lossy_request_says_nothing_of_versions() -> None:
    shared = ProposerAcceptance()
    lossy, other = RequestAcceptance(shared, is_lossy=True), RequestAcceptance(shared)
    other.note(1, 2, 0.0)
    lossy.note(2, 5, 0.0)
    assert (lossy.drafter_version, other.drafter_version) == (2, 1)
    assert [(point.version, point.num_accepted_tokens) for point in shared.versions.points] == [(1, 2)]
    assert shared.num_swaps == 0


def test_drafts_that_the_target_made_say_what_to_expect_at_each_place() -> None:
    shared = ProposerAcceptance()
    request, lossy = RequestAcceptance(shared), RequestAcceptance(shared, is_lossy=True)
    for round_number in range(400):
        request.note(0, 3 if round_number % 2 else 1, 0.0, 3)
        lossy.note(0, 0, 0.0, 3)
    assert shared.probabilities(3) == pytest.approx((1.0, 0.5, 1.0), abs=0.06)


def test_a_draft_has_the_tokens_that_drafts_of_its_length_had() -> None:
    shared = ProposerAcceptance()
    assert shared.draft_length(5) == 5, "before any, as of a chain"
    for num_tokens in (6, 8):
        shared.add_length(5, num_tokens)
    shared.add_length(2, 3)
    assert [shared.draft_length(k) for k in (5, 2, 1, 8)] == pytest.approx([7, 3, 1.5, 11.2])


@pytest.mark.parametrize(("num_swaps", "gain"), [(0, 2.0), (1, 1.4)])
def test_the_time_of_a_token_in_the_target_is_measured_anew(num_swaps: int, gain: float) -> None:
    costs = RoundCosts(StepTable((1, 2), (1_000_000, 1_000_000)))
    for _ in range(200):
        costs.add_in_target(1, 0.0005)
    for _ in range(8):
        costs.add_in_target(1, 0.001, num_swaps)
    assert costs.in_target_gain(1) == pytest.approx(gain, abs=0.15)
