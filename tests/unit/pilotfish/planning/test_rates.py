from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost, load_profile
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN, Drafting
from pilotfish.planning.fleet import FleetSimulation
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import poisson_workload

WORKLOAD = poisson_workload(1.0, parse_lengths("100"), parse_lengths("100"))
A100 = ReplicaRates(DecodingModel(load_profile("a100-70b"), Drafting()))


def test_plain_rates_are_those_of_steps(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    assert rates.num_draft_tokens == [0] * 65
    for batch in (1, 64):
        assert rates.token_s[batch] == profile.target.step_s(batch, batch)


@given(
    acceptance=st.floats(0.0, 1.0),
    max_draft_tokens=st.integers(0, 8),
    token_s=st.floats(0.0, 1e-3),
    round_trip_s=st.floats(0.0, 5e-3),
)
def test_the_crossover_is_where_drafts_stop_to_pay(
    acceptance: float, max_draft_tokens: int, token_s: float, round_trip_s: float
) -> None:
    cost = RooflineCost(weights_s=0.008, token_s=token_s)
    profile = replace(load_profile("a100-70b"), target=cost, max_sequences=40)
    drafting = Drafting(acceptance=(acceptance,), max_draft_tokens=max_draft_tokens)
    model = DecodingModel(profile, drafting, round_trip_s=round_trip_s)

    def gain(batch: int) -> float:
        return max(model.speed_up(batch, k) for k in range(max_draft_tokens + 1))

    crossover = ReplicaRates(model).crossover_batch
    if crossover is None:
        assert gain(40) > 1.03
    else:
        assert all(gain(batch) <= 1.03 * (1 + 1e-9) for batch in range(crossover, 41))
        assert crossover == 1 or gain(crossover - 1) > 1.03


def test_a_prompt_takes_as_many_steps_as_it_has_chunks(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    assert rates.prefill(0, 512) == (pytest.approx(512e-4), 1)
    assert rates.prefill(0, 100) == (pytest.approx(100e-4), 1)
    assert rates.prefill(0, 1024) == (pytest.approx(2 * 512e-4), 1)


def test_reading_on_in_a_prompt_reads_what_was_read_of_it(make_profile: Callable[..., HardwareProfile]) -> None:
    cost = RooflineCost(weights_s=0.008, token_s=1e-4, context_token_s=1e-6)
    rates = ReplicaRates(DecodingModel(make_profile(target=cost), PLAIN))
    assert rates.prefill(0, 1024)[0] == pytest.approx(2 * 512e-4 + 512e-6)


def test_decoding_slows_down_by_the_length_of_mixed_steps(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    assert rates.prefill(10, 502) == (pytest.approx(512e-4), pytest.approx(512e-4 / 0.008))


def test_prompts_keep_a_share_of_full_steps(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(replace(profile, max_batch_tokens=80), PLAIN))
    assert rates.num_chunk_tokens[64] == 20
    # Of 64 rows 60 find room beside the prompt; the others wait for the next step.
    assert rates.prefill(64, 20) == (pytest.approx(0.008), pytest.approx(64 / 60))


def test_capacity_grows_with_what_is_allowed() -> None:
    capacities = [A100.capacity(WORKLOAD, token_s) for token_s in (1e-4, 0.003, 0.006, 0.01, 0.05)]
    assert capacities[0] == 0, "one sequence alone is slower"
    assert capacities == sorted(capacities)
    assert capacities[1] < capacities[-1]


def test_plain_capacity_by_hand(profile: HardwareProfile) -> None:
    # 64 at once, 99 steps of 8 ms; while a prompt of 100 is read, for 16.4 ms, decoding takes 16.4 / 8 times as long.
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    lost_s = 0.0164 * (1 - 8 / 16.4)
    assert rates.capacity(WORKLOAD, 1.0) == pytest.approx(64 / (99 * 0.008 + 64 * lost_s), rel=0.01)


def test_capacity_ends_where_prompts_are_all_that_a_replica_reads(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    workload = poisson_workload(1.0, parse_lengths("2000"), parse_lengths("2"))
    assert 4.9 < rates.capacity(workload, 10.0) <= 1 / (2000 * 1e-4)


@pytest.mark.parametrize("token_s", [0.0045, 0.008, 0.02])
def test_the_simulation_agrees_with_the_capacity(token_s: float) -> None:
    rate = A100.capacity(WORKLOAD, token_s)
    outcome = FleetSimulation(A100, 1).run(replace(WORKLOAD, rate=rate).requests(4000))
    assert statistics.fmean(outcome.token_s) == pytest.approx(token_s, rel=0.25)
