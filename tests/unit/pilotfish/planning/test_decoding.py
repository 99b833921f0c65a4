from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.emulation.profiles import HardwareProfile, RooflineCost
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import PLAIN, DraftAssumptions, Placement
from pilotfish.speculation.cost import expected_tokens_by_position


def test_one_sequence_gains_what_leviathan_says(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(), DraftAssumptions(acceptance=(0.8,)))
    for k in range(1, 9):
        assert model.speed_up(1, k) == pytest.approx(expected_tokens_by_position((0.8,), k) / (1 + k * 0.5 / 8))


def test_no_drafts_are_plain_decoding(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, PLAIN, round_trip_s=0.002)
    for batch in (1, 7, 64):
        assert model.token_s(batch, 0) == profile.target.step_s(batch, batch, 0)
        assert model.best_k(batch) == 0


def test_longer_contexts_cost_what_the_profile_says(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=0.0, context_token_s=1e-6))
    assert DecodingModel(profile, PLAIN, context_tokens=500).token_s(4, 0) == pytest.approx(0.008 + 4 * 500e-6)


def test_a_drafter_of_several_targets_drafts_for_all(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(draft=RooflineCost(weights_s=0.0, token_s=1e-4))
    alone, shared = (
        DecodingModel(profile, DraftAssumptions(), targets_per_drafter=ratio).round_s(1, 5) for ratio in (1, 4)
    )
    assert shared - alone == pytest.approx(5 * 3 * 1e-4)


def test_beside_the_target_there_is_no_network_and_nothing_ahead(make_profile: Callable[..., HardwareProfile]) -> None:
    drafting = DraftAssumptions(acceptance=(1.0,), ahead_tokens=60)
    model = DecodingModel(make_profile(), drafting, placement=Placement.COLOCATED, round_trip_s=0.005)
    for batch in (1, 16):
        assert model.round_s(batch, 4) == pytest.approx(0.008 + 4 * 0.0005)


def test_the_fastest_length_is_used_or_a_shorter_one_that_is_as_fast(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, DraftAssumptions(max_draft_tokens=4), handling_s=1e-4)
    for batch in (1, 2, 16, 64):
        times_s = [model.token_s(batch, k) for k in range(5)]
        best = model.best_k(batch)
        assert times_s[best] <= 1.03 * min(times_s)
        assert all(time_s > 1.03 * min(times_s) for time_s in times_s[:best])
