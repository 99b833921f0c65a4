from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.emulation.profiles import HardwareProfile, RooflineCost
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import Drafting
from pilotfish.planning.rounds import Rounds


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("ahead_tokens", [0, 5])
def test_one_sequence_takes_what_the_formula_says(
    make_profile: Callable[..., HardwareProfile], k: int, ahead_tokens: int
) -> None:
    drafting = Drafting(acceptance=(1.0,), ahead_tokens=ahead_tokens)
    model = DecodingModel(make_profile(), drafting, round_trip_s=0.0006)
    assert Rounds(model, 1, k).measure_round_s() == pytest.approx(model.round_s(1, k))


def test_a_share_of_hits_hides_a_share_of_the_drafting(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(), Drafting(acceptance=(0.8,), ahead_tokens=60))
    assert model.round_s(1, 5) == pytest.approx(0.008 + 0.0025 * (1 - model.drafting.hit_rate(5, 12)))
    assert Rounds(model, 1, 5).measure_round_s() == pytest.approx(model.round_s(1, 5), rel=0.02)


def test_two_sequences_out_of_step_are_gathered(make_profile: Callable[..., HardwareProfile]) -> None:
    # The second is drafted while the first is verified: without gathering they would go on taking turns, 16 ms a round.
    profile = make_profile(draft=RooflineCost(weights_s=0.0005, token_s=0.0))
    rounds = Rounds(DecodingModel(profile, Drafting()), 2, 5)
    first, second = rounds._sequences
    rounds._begin_round(first)
    rounds.later(0.004, lambda: rounds._begin_round(second))
    rounds._run_rounds(10)
    start_s = rounds.env.now
    rounds._run_rounds(10)
    assert rounds.env.now - start_s == pytest.approx(10 * (0.008 + 5 * 0.0005), rel=0.05)


def test_sequences_in_step_take_turns_where_rows_take_time(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=0.0001))
    model = DecodingModel(profile, Drafting())
    assert model.round_s(32, 5) == pytest.approx(0.0217), "19.2 ms of rows, 2.5 of drafting"
    assert Rounds(model, 32, 5).measure_round_s() == pytest.approx(0.0192, rel=0.02)


def test_steps_hold_no_more_rows_than_fit(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(max_batch_tokens=24), Drafting())
    # Four of eight sequences with six rows each fit: two steps a round, and drafting beside them.
    assert Rounds(model, 8, 5).measure_round_s() == pytest.approx(2 * 0.008, rel=0.05)


def test_a_drafter_that_serves_two_targets_is_busy_for_both(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(draft=RooflineCost(weights_s=0.0, token_s=0.002))
    model = DecodingModel(profile, Drafting(), targets_per_drafter=2)
    alone = Rounds(model, 4, 5).measure_round_s()
    shared = Rounds(model, 4, 5, num_targets=2).measure_round_s()
    assert shared > 1.5 * alone


def test_no_round_is_shorter_than_a_verification(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, Drafting(acceptance=(1.0,), ahead_tokens=60))
    for batch in (1, 3, 16):
        assert Rounds(model, batch, 3).measure_round_s() >= 0.008
