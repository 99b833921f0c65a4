"""Simulated fleets against queueing theory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost
from pilotfish.errors import ConfigError
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import PLAIN
from pilotfish.planning.fleet import FleetSimulation
from pilotfish.planning.outcome import Outcome
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import PoissonWorkload, Request

Profile = Callable[..., HardwareProfile]


@pytest.fixture
def rates(make_profile: Profile) -> ReplicaRates:
    """Plain decoding; past 16 sequences they slow each other down."""
    profile = make_profile(target=RooflineCost(weights_s=0.008, token_s=0.0005), max_batch_tokens=128, max_sequences=32)
    return ReplicaRates(DecodingModel(profile, PLAIN))


def poisson(rate: float, prompt: str = "20", output: str = "30") -> PoissonWorkload:
    return PoissonWorkload(rate, parse_lengths(prompt), parse_lengths(output))


def run(rates: ReplicaRates, num_targets: int, workload: PoissonWorkload, num_requests: int = 2000) -> Outcome:
    return FleetSimulation(rates, num_targets).run_open(workload.requests(num_requests, seed=1))


def test_waiting_in_line_is_that_of_m_d_1(make_profile: Profile) -> None:
    # One request at a time, of one step of fixed length each.
    rates = ReplicaRates(DecodingModel(make_profile(max_sequences=1), PLAIN))
    service_s, load = 0.008, 0.7
    outcome = run(rates, 1, poisson(load / service_s, output="1"), 60_000)
    # Pollaczek and Khinchine.
    assert statistics.fmean(outcome.queue_s) == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.05)
    assert outcome.utilisation == pytest.approx(load, rel=0.02)


def test_sharing_a_replica_is_that_of_m_g_1_processor_sharing(make_profile: Profile) -> None:
    # Bound by arithmetic, each of n sequences gets an n-th of the speed.
    profile = make_profile(target=RooflineCost(weights_s=0.0, token_s=1e-3), max_sequences=500, kv_cache_tokens=1 << 30)
    rates = ReplicaRates(DecodingModel(profile, PLAIN))
    alone_s, load = 0.2, 0.6
    outcome = run(rates, 1, poisson(load / alone_s, prompt="1", output="uniform:100-300"), 20_000)
    assert statistics.fmean(outcome.total_s) == pytest.approx(alone_s / (1 - load), rel=0.05)


def test_littles_law(rates: ReplicaRates) -> None:
    simulation = FleetSimulation(rates, 3)
    outcome = simulation.run_open(poisson(40).requests(3000, seed=2))
    # Replicas count the sequences that decode over time, requests the time that they decode.
    by_replicas = outcome.mean_decoding * outcome.utilisation * 3 * outcome.duration_s
    by_requests = sum(value * 29 for value in outcome.token_s)
    assert by_replicas == pytest.approx(by_requests, rel=1e-6)


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
    outcome = simulation.run_open(iter(requests))
    assert outcome.num_finished == len(requests)
    assert outcome.num_output_tokens == sum(request.num_output_tokens for request in requests)
    assert min(outcome.queue_s) >= 0
    assert all(replica.num_held == replica.num_kv_tokens == 0 for replica in simulation._replicas)
    for value in outcome.token_s:
        assert value >= 0.008 * (1 - 1e-6)


def test_more_replicas_never_hurt(rates: ReplicaRates) -> None:
    outcomes = [run(rates, num_targets, poisson(60)) for num_targets in (1, 2, 3, 5, 8, 20)]
    for values in ([statistics.fmean(o.total_s) for o in outcomes], [statistics.fmean(o.token_s) for o in outcomes]):
        assert values == sorted(values, reverse=True)


def test_a_lone_request_takes_its_prefill_and_its_steps(rates: ReplicaRates) -> None:
    outcome = FleetSimulation(rates, 2, round_trip_s=0.001).run_open(iter([Request(1.0, 100, 11)]))
    assert outcome.first_token_s[0] == pytest.approx(100 * 0.0005 + 0.001)
    assert outcome.token_s[0] == pytest.approx(0.008)
    assert outcome.total_s[0] == pytest.approx(0.05 + 0.08 + 0.001)


def test_prompts_that_come_while_others_decode_slow_these_down(rates: ReplicaRates) -> None:
    requests = [Request(0.0, 1, 101), Request(0.4, 1000, 1)]
    outcome = FleetSimulation(rates, 1).run_open(iter(requests))
    alone = FleetSimulation(rates, 1).run_open(iter(requests[:1]))
    assert max(outcome.token_s) > 1.2 * alone.token_s[0]


def test_requests_that_have_no_room_wait_in_line(make_profile: Profile) -> None:
    rates = ReplicaRates(DecodingModel(make_profile(kv_cache_tokens=100), PLAIN))
    outcome = FleetSimulation(rates, 1).run_open(iter([Request(0.0, 40, 20), Request(0.0, 40, 20)]))
    assert sorted(outcome.queue_s) == pytest.approx([0, 0.008 * 20])


def test_a_request_larger_than_the_cache_is_refused(make_profile: Profile) -> None:
    rates = ReplicaRates(DecodingModel(make_profile(kv_cache_tokens=100), PLAIN))
    with pytest.raises(ConfigError, match="never fits a replica"):
        FleetSimulation(rates, 1).run_open(iter([Request(0.0, 90, 20)]))


def test_the_closed_loop_keeps_so_many_in_flight(rates: ReplicaRates) -> None:
    def requests() -> Iterator[Request]:
        for _ in range(400):
            yield Request(0.0, 1, 50)

    outcome = FleetSimulation(rates, 1).run_closed(requests(), 8)
    assert outcome.num_finished == 400
    assert outcome.tokens_per_s == pytest.approx(8 / 0.008, rel=0.1)


def test_requests_of_the_warm_up_are_served_but_not_counted(rates: ReplicaRates) -> None:
    outcome = FleetSimulation(rates, 1, warm_up=30).run_open(poisson(10).requests(100, seed=0))
    assert outcome.num_finished == 70


def test_equal_seeds_give_equal_outcomes(rates: ReplicaRates) -> None:
    first, second = run(rates, 3, poisson(50), 500), run(rates, 3, poisson(50), 500)
    assert first.total_s == second.total_s
