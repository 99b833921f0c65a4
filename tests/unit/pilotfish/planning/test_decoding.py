from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.emulation.profiles import HardwareProfile, RooflineCost, load_profile
from pilotfish.errors import ConfigError
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN, Drafting, Placement
from pilotfish.planning.rates import ReplicaRates
from pilotfish.speculation.cost import speedup


def test_one_sequence_gains_what_leviathan_says(make_profile: Callable[..., HardwareProfile]) -> None:
    model = DecodingModel(make_profile(), Drafting(acceptance=(0.8,)))
    for k in range(1, 9):
        assert model.speed_up(1, k) == pytest.approx(speedup(0.8, k, 0.5 / 8))


def test_no_drafts_are_plain_decoding(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, PLAIN, round_trip_s=0.002)
    for batch in (1, 7, 64):
        assert model.token_s(batch, 0) == profile.target.step_s(batch, batch, 0)
        assert model.best_k(batch) == 0


@given(
    acceptance=st.floats(0.0, 1.0),
    max_draft_tokens=st.integers(0, 8),
    token_s=st.floats(0.0, 1e-3),
    round_trip_s=st.floats(0.0, 5e-3),
)
def test_the_crossover_is_where_the_cost_model_says(
    acceptance: float, max_draft_tokens: int, token_s: float, round_trip_s: float
) -> None:
    profile = load_profile("a100-70b")
    values = {name: getattr(profile, name) for name in profile.__dataclass_fields__}
    cost = RooflineCost(weights_s=0.008, token_s=token_s)
    profile = HardwareProfile(**(values | {"target": cost, "max_sequences": 40}))
    drafting = Drafting(acceptance=(acceptance,), max_draft_tokens=max_draft_tokens)
    model = DecodingModel(profile, drafting, round_trip_s=round_trip_s)

    def pays(batch: int) -> bool:
        return any(model.token_s(batch, k) < model.token_s(batch, 0) for k in range(1, max_draft_tokens + 1))

    crossover = ReplicaRates(model, stepwise=False).crossover_batch
    if crossover is None:
        assert pays(40)
    else:
        assert not any(pays(batch) for batch in range(crossover, 41))
        assert crossover == 1 or pays(crossover - 1)


def test_a_step_has_room_for_so_many_rows(profile: HardwareProfile) -> None:
    model = DecodingModel(profile, PLAIN, max_batch_tokens=100)
    assert model.step_s(10, 100) == pytest.approx(0.01)
    assert model.step_s(20, 200) == pytest.approx(2 * 0.01)
    assert model.step_s(2, 101) == pytest.approx(2 * 0.008)


def test_longer_contexts_cost_what_the_profile_says(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=0.0, context_token_s=1e-6))
    assert DecodingModel(profile, PLAIN, context_tokens=500).token_s(4, 0) == pytest.approx(0.008 + 4 * 500e-6)


def test_a_drafter_of_several_targets_drafts_for_all(make_profile: Callable[..., HardwareProfile]) -> None:
    profile = make_profile(draft=RooflineCost(weights_s=0.0, token_s=1e-4))
    assert DecodingModel(profile, Drafting(), targets_per_drafter=4).draft_s(8, 5) == pytest.approx(5 * 32 * 1e-4)


def test_beside_the_target_there_is_no_network_and_nothing_ahead(make_profile: Callable[..., HardwareProfile]) -> None:
    drafting = Drafting(acceptance=(1.0,), ahead_tokens=60)
    model = DecodingModel(make_profile(), drafting, placement=Placement.COLOCATED, round_trip_s=0.005)
    assert model.round_s(1, 4) == pytest.approx(0.008 + 4 * 0.0005)


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
