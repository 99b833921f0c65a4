"""Simulated fleets against queueing theory."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost
from pilotfish.errors import ConfigError
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN
from pilotfish.planning.fleet import FleetSimulation, Outcome
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


def run(rates: ReplicaRates, num_targets: int, workload: Workload, num_requests: int = 2000) -> Outcome:
    return FleetSimulation(rates, num_targets).run(workload.requests(num_requests))


def test_waiting_in_line_is_that_of_m_d_1(make_profile: Profile) -> None:
    # One request at a time, of one step of fixed length each.
    rates = ReplicaRates(DecodingModel(make_profile(max_sequences=1), PLAIN))
    service_s, load = 0.008, 0.7
    outcome = run(rates, 1, poisson(load / service_s, output="1"), 60_000)
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


def test_littles_law(rates: ReplicaRates) -> None:
    # All come at once, so that the replica is busy from the first to the last.
    requests = [Request(0.0, 20, 30 + index) for index in range(20)]
    outcome = FleetSimulation(rates, 1).run(requests)
    decoding_s = [gap_s * num_gaps for gap_s, num_gaps in zip(outcome.token_s, range(29, 49), strict=True)]
    busy_s = max(first_s + rest_s for first_s, rest_s in zip(outcome.first_token_s, decoding_s, strict=True))
    # Replicas count the sequences that decode over time, requests the time that they decode.
    assert outcome.mean_decoding * busy_s == pytest.approx(sum(decoding_s), rel=0.01)


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


def test_more_replicas_never_hurt(rates: ReplicaRates) -> None:
    outcomes = [run(rates, num_targets, poisson(60)) for num_targets in (1, 2, 3, 5, 8, 20)]
    for values in (
        [statistics.fmean(outcome.first_token_s) for outcome in outcomes],
        [statistics.fmean(outcome.token_s) for outcome in outcomes],
    ):
        assert values == sorted(values, reverse=True)


def test_a_lone_request_takes_its_prefill_and_its_steps(rates: ReplicaRates) -> None:
    outcome = FleetSimulation(rates, 2, round_trip_s=0.001).run([Request(1.0, 100, 11)])
    assert outcome.first_token_s[0] == pytest.approx(100 * 0.0005 + 0.001)
    assert outcome.token_s[0] == pytest.approx(0.008)


def test_prompts_that_come_while_others_decode_slow_these_down(rates: ReplicaRates) -> None:
    requests = [Request(0.0, 1, 101), Request(0.4, 1000, 1)]
    outcome = FleetSimulation(rates, 1).run(requests)
    alone = FleetSimulation(rates, 1).run(requests[:1])
    assert max(outcome.token_s) > 1.2 * alone.token_s[0]


def test_requests_that_have_no_room_wait_in_line(make_profile: Profile) -> None:
    rates = ReplicaRates(DecodingModel(make_profile(kv_cache_tokens=100), PLAIN))
    outcome = FleetSimulation(rates, 1).run([Request(0.0, 40, 20), Request(0.0, 40, 20)])
    assert sorted(outcome.first_token_s) == pytest.approx([0.008, 0.008 * 21])


def test_a_request_larger_than_the_cache_is_refused(make_profile: Profile) -> None:
    rates = ReplicaRates(DecodingModel(make_profile(kv_cache_tokens=100), PLAIN))
    with pytest.raises(ConfigError, match="never fits a replica"):
        FleetSimulation(rates, 1).run([Request(0.0, 90, 20)])


def test_the_replica_that_holds_the_fewest_is_chosen(rates: ReplicaRates) -> None:
    # Three at once on three replicas: nobody shares one.
    outcome = FleetSimulation(rates, 3).run([Request(0.0, 20, 30)] * 3)
    assert list(outcome.first_token_s) == pytest.approx([0.01] * 3)
    assert outcome.mean_decoding == pytest.approx(1, rel=0.05)


def test_a_replica_holds_no_more_than_it_may(make_profile: Profile) -> None:
    rates = ReplicaRates(DecodingModel(make_profile(max_sequences=2), PLAIN))
    outcome = FleetSimulation(rates, 1).run([Request(0.0, 1, 11)] * 4)
    assert sorted(outcome.first_token_s)[:2] == pytest.approx([0.008, 0.016])
    assert sorted(outcome.first_token_s)[2] >= 0.008 * (11 + 1 - 1e-6), "when the first has ended"


def test_requests_of_the_warm_up_are_served_but_not_counted(rates: ReplicaRates) -> None:
    outcome = FleetSimulation(rates, 1, warm_up=30).run(poisson(10).requests(100))
    assert len(outcome.first_token_s) == 70


def test_equal_requests_have_equal_outcomes(rates: ReplicaRates) -> None:
    first, second = run(rates, 3, poisson(50), 500), run(rates, 3, poisson(50), 500)
    assert first == second
