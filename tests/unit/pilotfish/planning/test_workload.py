from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.errors import ConfigError
from pilotfish.planning.workload import Request, Workload, poisson_workload, read_workload, recorded_workload

TRACE = [Request(5.0, 100, 10), Request(6.0, 200, 20), Request(7.0, 300, 30)]


def poisson(rate: float = 10.0) -> Workload:
    return poisson_workload(rate, parse_lengths("uniform:100-300"), parse_lengths("64"))


def test_arrivals_come_at_the_rate_and_vary_as_poissons_do() -> None:
    requests = list(poisson().requests(20_000))
    gaps = [after.arrival_s - before.arrival_s for before, after in itertools.pairwise(requests)]
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.03)


def test_means_are_those_of_the_lengths() -> None:
    assert poisson().mean_prompt_tokens == pytest.approx(200, rel=0.01)
    assert poisson().mean_output_tokens == 64


def test_another_rate_has_the_same_requests_at_other_times() -> None:
    slow, fast = (list(replace(poisson(), rate=rate).requests(50)) for rate in (1.0, 4.0))
    assert [request[1:] for request in slow] == [request[1:] for request in fast]
    assert slow[-1].arrival_s == pytest.approx(4 * fast[-1].arrival_s)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        poisson(rate)


def test_a_trace_begins_at_zero_and_begins_again() -> None:
    requests = list(recorded_workload(TRACE).requests(5))
    assert [request.arrival_s for request in requests] == pytest.approx([0, 1, 2, 3, 4])
    assert requests[3][1:] == (100, 10)


def test_rate_and_means_of_a_trace() -> None:
    trace = recorded_workload(TRACE)
    assert (trace.rate, trace.mean_prompt_tokens, trace.mean_output_tokens) == (1.0, 200, 20)


def test_a_trace_is_replayed_at_another_rate() -> None:
    requests = list(recorded_workload(TRACE, rate=4.0).requests(4))
    assert [request.arrival_s for request in requests] == pytest.approx([0, 0.25, 0.5, 0.75])


def test_a_trace_without_duration_is_refused() -> None:
    with pytest.raises(ConfigError, match="different times"):
        recorded_workload(TRACE[:1])


def test_files_of_bench_load_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 2000, "input_length": 7, "output_length": 8},
        {"timestamp": 1000, "input_length": 5, "output_length": 6},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    first, second = read_workload(path).requests(2)
    assert (first[1:], second) == ((5, 6), (1.0, 7, 8))
