from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.emulation.profiles import HardwareProfile, RooflineCost
from pilotfish.errors import ConfigError
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN, Drafting, Placement
from pilotfish.speculation.cost import expected_tokens


def test_one_sequence_gains_what_leviathan_says(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(), Drafting(acceptance=(0.8,)))
    for k in range(1, 9):
        assert model.speed_up(1, k) == pytest.approx(expected_tokens(0.8, k) / (1 + k * 0.5 / 8))


def test_no_drafts_are_plain_decoding(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, PLAIN, round_trip_s=0.002)
    for batch in (1, 7, 64):
        assert model.token_s(batch, 0) == profile.target.step_s(batch, batch, 0)
        assert model.best_k(batch) == 0


def test_a_step_has_room_for_so_many_rows(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=1e-4), max_batch_tokens=100)
    model = DecodingModel(profile, PLAIN)
    assert model.step_s(10, 100) == pytest.approx(0.01)
    assert model.step_s(20, 200) == pytest.approx(2 * 0.01)
    assert model.step_s(2, 101) == pytest.approx(2 * 0.008)


def test_longer_contexts_cost_what_the_profile_says(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=0.0, context_token_s=1e-6))
    assert DecodingModel(profile, PLAIN, context_tokens=500).token_s(4, 0) == pytest.approx(0.008 + 4 * 500e-6)


def test_a_drafter_of_several_targets_drafts_for_all(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(draft=RooflineCost(weights_s=0.0, token_s=1e-4))
    alone, shared = (DecodingModel(profile, Drafting(), targets_per_drafter=ratio).round_s(1, 5) for ratio in (1, 4))
    assert shared - alone == pytest.approx(5 * 3 * 1e-4)


def test_a_batch_is_drafted_for_and_verified_together(make_profile: Callable[..., HardwareProfile]) -> None:
    # The last draft comes while the first ones are computed: it waits for that step.
    model = DecodingModel(make_profile(), Drafting(), round_trip_s=0.001)
    assert model.round_s(8, 5) == pytest.approx(0.008 + 6 * 0.0005 + 2 * 0.001)


def test_an_orchestrator_handles_one_message_after_the_other(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(), Drafting(), handling_s=1e-4)
    assert model.round_s(1, 5) == pytest.approx(0.008 + 5 * 0.0005 + 2e-4)
    assert model.round_s(16, 5) == pytest.approx(0.008 + 5 * 0.0005 + 2 * 16e-4)
    assert DecodingModel(make_profile(), Drafting(), handling_s=1e-3).round_s(32, 5) == pytest.approx(64e-3)


def test_two_halves_take_turns_where_that_is_faster(make_profile: Callable[..., HardwareProfile]) -> None:
    slow_drafter = RooflineCost(weights_s=0.002, token_s=0.0)
    model = DecodingModel(make_profile(draft=slow_drafter), Drafting())
    # Together 8 ms and six steps of the drafter; in turns twice 8 ms, or one half's verification and drafting.
    assert model.round_s(2, 5) == pytest.approx(0.008 + 5 * 0.002)
    assert model.round_s(8, 5) == pytest.approx(0.008 + 6 * 0.002)
    bound_by_rows = make_profile(target=RooflineCost(weights_s=0.008, token_s=1e-4), draft=slow_drafter)
    model = DecodingModel(bound_by_rows, Drafting())
    assert model.round_s(48, 5) == pytest.approx(48 * 6 * 1e-4), "drafting costs nothing"


def test_steps_hold_no_more_rows_than_fit(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(max_batch_tokens=24), Drafting())
    # Four of eight sequences with six rows each fit: two steps a round, and drafting beside them.
    assert model.round_s(8, 5) == pytest.approx(2 * 0.008)


def test_beside_the_target_there_is_no_network_and_nothing_ahead(make_profile: Callable[..., HardwareProfile]) -> None:
    drafting = Drafting(acceptance=(1.0,), ahead_tokens=60)
    model = DecodingModel(make_profile(), drafting, placement=Placement.COLOCATED, round_trip_s=0.005)
    for batch in (1, 16):
        assert model.round_s(batch, 4) == pytest.approx(0.008 + 4 * 0.0005)


def test_a_hit_of_drafting_ahead_hides_drafting_and_one_round_trip(
    make_profile: Callable[..., HardwareProfile],
) -> None:
    drafting = Drafting(acceptance=(1.0,), ahead_tokens=5)
    model = DecodingModel(make_profile(), drafting, round_trip_s=0.001)
    assert model.round_s(1, 5) == pytest.approx(0.009)
    slow = make_profile(draft=RooflineCost(weights_s=0.002, token_s=0.0))
    assert DecodingModel(slow, drafting, round_trip_s=0.001).round_s(1, 5) == pytest.approx(6 * 0.002)


def test_a_profile_that_takes_no_time_is_refused(make_profile: Callable[..., HardwareProfile]) -> None:
    with pytest.raises(ConfigError, match="nothing to plan"):
        DecodingModel(make_profile(target=RooflineCost(weights_s=0.0, token_s=0.0)), PLAIN)


def test_the_others_wait_for_a_draft_that_was_not_foreseen(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(), Drafting(acceptance=(0.8,), ahead_tokens=60))
    hit_rate = model.drafting.hit_rate(5, 12)
    assert model.round_s(1, 5) == pytest.approx(0.008 + 0.0025 * (1 - hit_rate))
    assert model.round_s(4, 5) == pytest.approx(0.008 + 0.003 * (1 - hit_rate**4))


def test_the_fastest_length_is_used_or_a_shorter_one_that_is_as_fast(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, Drafting(max_draft_tokens=4), handling_s=1e-4)
    for batch in (1, 2, 16, 64):
        times_s = [model.token_s(batch, k) for k in range(5)]
        best = model.best_k(batch)
        assert times_s[best] <= 1.03 * min(times_s)
        assert all(time_s > 1.03 * min(times_s) for time_s in times_s[:best])
