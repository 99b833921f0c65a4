import pytest

from pilotfish.speculation.statistics import AcceptanceStatistics, DecayedAcceptance


def test_counts():
    statistics = AcceptanceStatistics()
    for num_drafts, num_accepted in ((3, 2), (1, 1), (3, 0), (0, 0)):
        statistics.add(num_drafts, num_accepted)
    assert (statistics.num_rounds, statistics.num_draft_tokens, statistics.num_accepted_tokens) == (3, 7, 3)
    assert statistics.mean_acceptance_length == 2
    assert statistics.num_accepted_tokens_per_position == (2, 1, 0)
    assert statistics.acceptance_per_position == (2 / 3, 1 / 2, 0)


def test_positions_of_trees_are_depths():
    statistics = AcceptanceStatistics()
    statistics.add(8, 2, draft_depth=3)
    statistics.add(2, 1)
    assert (statistics.num_draft_tokens, statistics.num_accepted_tokens) == (10, 3)
    assert statistics.acceptance_per_position == (1.0, 1 / 2, 0.0)


def test_decayed_acceptance_is_conditional_on_reaching_a_position():
    decayed = DecayedAcceptance(half_life_rounds=1e9, prior_weight=0)
    for _ in range(10):
        decayed.add(2, 2)
        decayed.add(2, 0)
    assert decayed.probabilities(2) == pytest.approx((0.5, 1.0))


def test_decayed_acceptance_forgets():
    decayed = DecayedAcceptance(half_life_rounds=4)
    for _ in range(200):
        decayed.add(1, 1)
    assert decayed.probabilities(1)[0] > 0.85
    for _ in range(40):
        decayed.add(1, 0)
    assert decayed.probabilities(1)[0] < 0.1


def test_what_is_doubted_counts_for_less_and_says_the_same() -> None:
    sure, doubted = (DecayedAcceptance(half_life_rounds=1e9, prior_weight=0.0) for _ in range(2))
    for acceptance in (sure, doubted):
        for _ in range(90):
            acceptance.add(2, 2)
        acceptance.add(2, 0, 10)
    doubted.doubt(10)
    for acceptance in (sure, doubted):
        assert acceptance.probabilities(2) == pytest.approx((0.9, 1.0), rel=1e-4)
    for acceptance in (sure, doubted):
        acceptance.add(2, 0, 10)
    assert doubted.probabilities(1) == pytest.approx((0.45,), rel=1e-4)
    assert sure.probabilities(1) == pytest.approx((90 / 110,), rel=1e-4)


def test_priors_by_position_stand_in_for_what_was_never_seen() -> None:
    decayed = DecayedAcceptance(half_life_rounds=1e9, prior_weight=2)
    assert decayed.probabilities(3, (0.9, 0.6)) == (0.9, 0.6, 0.6)
    decayed.add(2, 1)
    assert decayed.probabilities(2, (0.9, 0.6)) == pytest.approx(((1 + 1.8) / 3, 1.2 / 3))


def test_a_position_leans_on_the_one_before_as_much_as_is_asked() -> None:
    decayed = DecayedAcceptance(half_life_rounds=1e9, prior=0.5, prior_weight=0, neighbour_weight=8)
    for _ in range(4):
        decayed.add(1, 1)
    decayed.add(2, 1)
    assert decayed.probabilities(2) == pytest.approx((1.0, 8 / 9))
