"""When requests arrive."""

import itertools
import statistics
from random import Random

import pytest

from pilotfish.bench.load.level import Level, arrival_times_s, parse_levels, trace_times_s
from pilotfish.bench.load.trace import TraceEntry
from pilotfish.errors import ConfigError


def gaps(rate: float, burstiness: float, seed: int = 1, count: int = 20_000) -> list[float]:
    times = itertools.islice(arrival_times_s(rate, burstiness, Random(seed)), count)
    return [later - earlier for earlier, later in itertools.pairwise(itertools.chain((0.0,), times))]


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gaps_have_the_rate_and_the_burstiness_that_is_asked_for(burstiness: float, variation: float) -> None:
    values = gaps(5.0, burstiness)
    assert statistics.fmean(values) == pytest.approx(0.2, rel=0.04)
    # Of a gamma distribution: 1 / sqrt(shape); 1 for a Poisson process.
    assert statistics.stdev(values) / statistics.fmean(values) == pytest.approx(variation, rel=0.05)


def test_the_seed_decides_the_arrivals() -> None:
    assert gaps(5.0, 1.0, seed=3, count=50) == gaps(5.0, 1.0, seed=3, count=50)
    assert gaps(5.0, 1.0, seed=3, count=50) != gaps(5.0, 1.0, seed=4, count=50)


def test_a_trace_begins_at_once_and_is_played_at_its_speed() -> None:
    entries = [TraceEntry(timestamp, 1, 1) for timestamp in (5000, 6000, 9000)]
    assert list(trace_times_s(entries, 1.0)) == [0.0, 1.0, 4.0]
    assert list(trace_times_s(entries, 4.0)) == [0.0, 0.25, 1.0]


def test_levels_are_read_from_a_list() -> None:
    assert parse_levels("concurrency", "1, 4,16,4") == [Level("concurrency", value) for value in (1, 4, 16)]
    assert [str(level) for level in parse_levels("rate", "0.5,2", burstiness=2.0)] == ["0.5 req/s", "2 req/s"]
    assert parse_levels("rate", "1", burstiness=2.0)[0].burstiness == 2.0


def test_only_the_closed_loop_waits_for_answers() -> None:
    assert [Level(kind, 2).is_open_loop for kind in ("concurrency", "rate", "trace")] == [False, True, True]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("concurrency", "1,x", "no list of numbers"),
        ("concurrency", "1.5", "a whole number"),
        ("rate", "0", "above 0"),
        ("rate", "nan", "above 0"),
        ("trace", "-1", "above 0"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(kind, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_levels(kind, text)


def test_burstiness_must_be_above_zero() -> None:
    with pytest.raises(ConfigError, match="burstiness must be above 0"):
        parse_levels("rate", "1", burstiness=0)
