"""Simulated fleets against queueing theory."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import PLAIN
from pilotfish.planning.fleet import FleetOutcome, FleetSimulation
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import Request, Workload, poisson_workload

Profile = Callable[..., HardwareProfile]


@pytest.fixture
def rates(make_profile: Profile) -> ReplicaRates:
    """Plain decoding; past 16 sequences they slow each other down."""
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=0.0005), max_batch_tokens=128, max_sequences=32)
    return ReplicaRates(DecodingModel(profile, PLAIN))


def poisson(rate: float, prompt: str = "20", output: str = "30") -> Workload:
    return poisson_workload(rate, parse_lengths(prompt), parse_lengths(output))


def run(rates: ReplicaRates, num_targets: int, workload: Workload, num_requests: int = 2000) -> FleetOutcome:
    return FleetSimulation(rates, num_targets).run(workload.requests(num_requests))


def test_waiting_in_line_is_that_of_m_d_1(make_profile: Profile) -> None:
    # One request at a time, of one step of fixed length each.
    rates = ReplicaRates(DecodingModel(make_profile(max_sequences=1), PLAIN))
    service_s, load = 0.008, 0.7
    outcome = run(rates, 1, poisson(load / service_s, output="1"), 40_000)
    # Pollaczek and Khinchine.
    waiting_s = statistics.fmean(outcome.first_token_s) - service_s
    assert waiting_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.05)


def test_sharing_a_replica_is_that_of_m_g_1_processor_sharing(make_profile: Profile) -> None:
    # Bound by arithmetic, each of n sequences gets an n-th of the speed.
    profile = make_profile(target=RooflineCost(weights_s=0.0, token_s=1e-3), max_sequences=500, kv_cache_tokens=1 << 30)
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    alone_s, load = 0.2, 0.6
    outcome = run(rates, 1, poisson(load / alone_s, prompt="1", output="200"), 20_000)
    total_s = statistics.fmean(outcome.first_token_s) + 199 * statistics.fmean(outcome.token_s)
    assert total_s == pytest.approx(alone_s / (1 - load), rel=0.05)


@settings(max_examples=30, deadline=None)
@given(
    arrivals=st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 400), st.integers(1, 40)), min_size=1, max_size=60),
    num_targets=st.integers(1, 4),
    max_sequences=st.integers(1, 5),
)
def test_every_request_is_served_once(
    arrivals: list[tuple[float, int, int]], num_targets: int, max_sequences: int
) -> None:
    profile = HardwareProfile(
        name="small",
        description="",
        target=RooflineCost(weights_s=0.008, token_s=1e-4),
        draft=RooflineCost(weights_s=0.001, token_s=0.0),
        kv_cache_tokens=500,
        draft_kv_cache_tokens=500,
        max_sequences=max_sequences,
        max_batch_tokens=64,
        max_context_tokens=500,
    )
    requests = [Request(sum(gap for gap, _, _ in arrivals[: i + 1]), p, o) for i, (_, p, o) in enumerate(arrivals)]
    simulation = FleetSimulation(ReplicaRates(DecodingModel(profile, PLAIN)), num_targets)
    outcome = simulation.run(requests)
    assert len(outcome.first_token_s) == len(requests)
    assert len(outcome.token_s) == sum(request.num_output_tokens > 1 for request in requests)
    assert min(outcome.first_token_s) >= 0.008 * (1 - 1e-6)
    for value in outcome.token_s:
        assert value >= 0.008 * (1 - 1e-6)
