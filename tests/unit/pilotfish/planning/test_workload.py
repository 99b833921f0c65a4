from __future__ import annotations

import itertools
import statistics

import pytest

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.errors import ConfigError
from pilotfish.planning.workload import PoissonWorkload


def workload(rate: float = 10.0) -> PoissonWorkload:
    return PoissonWorkload(rate, parse_lengths("uniform:100-300"), parse_lengths("64"))


def test_arrivals_come_at_the_rate_and_vary_as_poissons_do() -> None:
    requests = list(workload().requests(20_000, seed=1))
    gaps = [after.arrival_s - before.arrival_s for before, after in itertools.pairwise(requests)]
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.03)


def test_means_are_those_of_the_lengths() -> None:
    assert workload().mean_prompt_tokens == pytest.approx(200, rel=0.01)
    assert workload().mean_output_tokens == 64


def test_another_rate_has_the_same_requests_at_other_times() -> None:
    slow, fast = (list(workload(rate).requests(50, seed=3)) for rate in (1.0, 4.0))
    assert [request.num_prompt_tokens for request in slow] == [request.num_prompt_tokens for request in fast]
    assert slow[-1].arrival_s == pytest.approx(4 * fast[-1].arrival_s)


def test_scaled() -> None:
    assert workload().scaled(2.5).rate == 25


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        workload(rate)
