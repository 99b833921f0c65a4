from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost, load_profile
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import PLAIN, DraftAssumptions
from pilotfish.planning.fleet import FleetSimulation
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import poisson_workload

WORKLOAD = poisson_workload(1.0, parse_lengths("100"), parse_lengths("100"))
A100 = ReplicaRates(DecodingModel(load_profile("a100-70b"), DraftAssumptions()))


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
    drafting = DraftAssumptions(acceptance=(acceptance,), max_draft_tokens=max_draft_tokens)
    model = DecodingModel(profile, drafting, round_trip_s=round_trip_s)

    def gain(batch: int) -> float:
        return max(model.speed_up(batch, k) for k in range(max_draft_tokens + 1))

    crossover = ReplicaRates(model).crossover_batch
    if crossover is None:
        assert gain(40) > 1.03
    else:
        assert all(gain(batch) <= 1.03 * (1 + 1e-9) for batch in range(crossover, 41))
        assert crossover == 1 or gain(crossover - 1) > 1.03


def test_capacity_ends_where_prompts_are_all_that_a_replica_reads(profile: HardwareProfile) -> None:
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    workload = poisson_workload(1.0, parse_lengths("2000"), parse_lengths("2"))
    assert 4.9 < rates.capacity(workload, 10.0) <= 1 / (2000 * 1e-4)


@pytest.mark.parametrize("token_s", [0.0045, 0.008, 0.02])
def test_the_simulation_agrees_with_the_capacity(token_s: float) -> None:
    rate = A100.capacity(WORKLOAD, token_s)
    outcome = FleetSimulation(A100, 1).run(replace(WORKLOAD, rate=rate).requests(4000))
    assert statistics.fmean(outcome.token_s) == pytest.approx(token_s, rel=0.25)
