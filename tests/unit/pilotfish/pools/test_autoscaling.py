"""How many replicas a load asks for."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.pools.autoscaling import WAITING_VALID_S, LoadPolicy, WaitingRequests, load_stats
from pilotfish.types import LoadReport


def context(stats: list[dict[str, float]], *, target_sequences: float = 10, target_num_replicas: int = 2):
    """As Serve's: metrics by name, then by replica."""
    names = {name for each in stats for name in each}
    metrics = {name: {f"replica {i}": each[name] for i, each in enumerate(stats)} for name in names}
    config = SimpleNamespace(target_ongoing_requests=target_sequences)
    return SimpleNamespace(aggregated_metrics=metrics, config=config, target_num_replicas=target_num_replicas)


def wanted(stats: list[dict[str, float]], **options: float) -> float:
    return LoadPolicy(target_kv_usage=0.8)(context(stats, **options))[0]


def test_requests_that_wait_count_once_however_many_replicas_heard_of_them() -> None:
    stats = load_stats(LoadReport(num_sequences_running=10), 20)
    late = load_stats(LoadReport(num_sequences_running=10), 0)
    assert wanted([stats, stats, late]) == pytest.approx(5.0)


def test_a_full_kv_cache_asks_for_replicas_that_few_sequences_do_not() -> None:
    full = load_stats(LoadReport(num_sequences_running=1, num_kv_blocks_used=96, num_kv_blocks_total=100))
    assert wanted([full, full]) == pytest.approx(2.4)


def test_without_reports_nothing_changes() -> None:
    assert wanted([], target_num_replicas=3) == 3
    silent = SimpleNamespace(aggregated_metrics=None, config=None, target_num_replicas=4)
    assert LoadPolicy(target_kv_usage=0.8)(silent) == (4, {})


@given(st.lists(st.integers(0, 64), min_size=1, max_size=8), st.integers(0, 100))
def test_the_wanted_replicas_hold_the_load(sequences: list[int], waiting: int) -> None:
    stats = [load_stats(LoadReport(num_sequences_running=count), waiting) for count in sequences]
    replicas = math.ceil(wanted(stats))
    assert replicas * 10 >= sum(sequences) + waiting > (replicas - 1) * 10


def test_what_orchestrators_said_is_forgotten() -> None:
    now = 0.0
    waiting = WaitingRequests(clock=lambda: now)
    waiting.note("a", 5)
    waiting.note("b", 7)
    waiting.note("a", 6)
    assert waiting.total() == 13
    now = WAITING_VALID_S - 1
    waiting.note("b", 1)
    now = WAITING_VALID_S
    assert waiting.total() == 1
