from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.emulation.profiles import HardwareProfile, load_profile
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import Drafting
from pilotfish.planning.fleet import FleetSimulation
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.steady_state import capacity, steady_state
from pilotfish.planning.workload import PoissonWorkload

WORKLOAD = PoissonWorkload(10, parse_lengths("100"), parse_lengths("100"))
A100 = ReplicaRates(DecodingModel(load_profile("a100-70b"), Drafting()), stepwise=False)


@given(rate=st.floats(0.01, 200), num_targets=st.integers(1, 50), acceptance=st.floats(0, 1))
def test_more_replicas_never_hurt(rate: float, num_targets: int, acceptance: float) -> None:
    fewer = steady_state(A100, WORKLOAD, rate / num_targets)
    more = steady_state(A100, WORKLOAD, rate / (num_targets + 1))
    if fewer is not None:
        assert more is not None
        assert more.token_s <= fewer.token_s
        assert more.batch <= fewer.batch


def test_overload_has_no_steady_state() -> None:
    assert steady_state(A100, WORKLOAD, 1000) is None


def test_capacity_is_where_the_goal_is_just_met() -> None:
    limit = capacity(A100, WORKLOAD, token_s=0.01)
    within, beyond = (steady_state(A100, WORKLOAD, share * limit) for share in (0.999, 1.01))
    assert within is not None
    assert within.token_s <= 0.01
    assert beyond is None or beyond.token_s > 0.01


def test_no_capacity_for_a_goal_that_one_sequence_misses() -> None:
    assert capacity(A100, WORKLOAD, token_s=1e-4) == 0


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_the_simulation_agrees(make_profile: Callable[..., HardwareProfile], rate: float) -> None:
    state = steady_state(A100, WORKLOAD, rate)
    outcome = FleetSimulation(A100, 1).run_open(WORKLOAD.scaled(rate / 10).requests(4000, seed=0))
    assert state is not None
    assert statistics.fmean(outcome.token_s) == pytest.approx(state.token_s, rel=0.25)
