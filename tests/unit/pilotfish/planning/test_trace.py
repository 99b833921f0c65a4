from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.planning.trace import TraceWorkload, read_workload
from pilotfish.planning.workload import Request

TRACE = [Request(5.0, 100, 10), Request(6.0, 200, 20), Request(7.0, 300, 30)]


def test_a_trace_begins_at_zero_and_begins_again() -> None:
    requests = list(TraceWorkload(TRACE).requests(5, seed=0))
    assert [request.arrival_s for request in requests] == pytest.approx([0, 1, 2, 3, 4])
    assert requests[3][1:] == (100, 10)


def test_rate_and_means() -> None:
    trace = TraceWorkload(TRACE)
    assert (trace.rate, trace.mean_prompt_tokens, trace.mean_output_tokens) == (1.0, 200, 20)


def test_replayed_at_another_rate() -> None:
    requests = list(TraceWorkload(TRACE, rate=4.0).requests(4, seed=0))
    assert [request.arrival_s for request in requests] == pytest.approx([0, 0.25, 0.5, 0.75])
    assert TraceWorkload(TRACE).scaled(4.0).rate == 4.0


def test_a_trace_without_duration_is_refused() -> None:
    with pytest.raises(ConfigError, match="different times"):
        TraceWorkload(TRACE[:1])


def test_files_of_bench_load_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 2000, "input_length": 7, "output_length": 8},
        {"timestamp": 1000, "input_length": 5, "output_length": 6},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    first, second = read_workload(path).requests(2, seed=0)
    assert (first[1:], second) == ((5, 6), (1.0, 7, 8))
