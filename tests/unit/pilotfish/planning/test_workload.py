from __future__ import annotations

import itertools
import statistics

import pytest

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.errors import ConfigError
from pilotfish.planning.workload import Request, Workload, poisson_workload, recorded_workload

TRACE = [Request(5.0, 100, 10), Request(6.0, 200, 20), Request(7.0, 300, 30)]


def poisson(rate: float = 10.0) -> Workload:
    return poisson_workload(rate, parse_lengths("uniform:100-300"), parse_lengths("64"))


def test_arrivals_come_at_the_rate_and_vary_as_poissons_do() -> None:
    requests = list(poisson().requests(20_000))
    gaps = [after.arrival_s - before.arrival_s for before, after in itertools.pairwise(requests)]
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        poisson(rate)


def test_a_trace_begins_at_zero_and_begins_again() -> None:
    requests = list(recorded_workload(TRACE).requests(5))
    assert [request.arrival_s for request in requests] == pytest.approx([0, 1, 2, 3, 4])
    assert requests[3][1:] == (100, 10)


def test_a_trace_is_replayed_at_another_rate() -> None:
    requests = list(recorded_workload(TRACE, rate=4.0).requests(4))
    assert [request.arrival_s for request in requests] == pytest.approx([0, 0.25, 0.5, 0.75])
