"""What is kept of the drafts that come unasked, and what is counted."""

from __future__ import annotations

from orchestrator.speculation_cache import AheadCounters, SpeculationCache
from pilotfish.messages import Proposal


def prepared(base_length: int, *assumed: int) -> Proposal:
    return Proposal(1, base_length, (7, 8, 9), assumed_token_ids=assumed)


def cache_at(base_length: int) -> tuple[SpeculationCache, AheadCounters]:
    counters = AheadCounters()
    cache = SpeculationCache(counters)
    cache.begin(base_length, is_expecting=True)
    return cache, counters


def test_a_draft_is_found_by_what_was_committed() -> None:
    cache, counters = cache_at(10)
    cache.add(prepared(10, 1, 2))
    cache.add(prepared(10, 1, 3))
    assert cache.take((1, 3)) == prepared(10, 1, 3)
    assert (counters.num_hits, counters.num_misses) == (1, 0)


def test_another_outcome_is_a_miss_and_the_drafts_are_wasted() -> None:
    cache, counters = cache_at(10)
    cache.add(prepared(10, 1, 2))
    cache.add(prepared(10, 3))
    assert cache.take((1,)) is None
    cache.begin(11, is_expecting=True)
    assert (counters.num_hits, counters.num_misses, counters.num_wasted_tokens) == (0, 1, 6)
    assert counters.num_prepared_tokens == 6
    assert counters.hit_rate == 0


def test_what_stands_on_other_tokens_is_stale() -> None:
    cache, counters = cache_at(10)
    cache.begin(12, is_expecting=True)
    cache.add(prepared(10, 1, 2))
    assert len(cache) == 0
    assert cache.take((1, 2)) is None
    assert (counters.num_stale_drafts, counters.num_wasted_tokens) == (1, 3)


def test_nothing_is_missed_that_was_not_wished_for() -> None:
    counters = AheadCounters()
    cache = SpeculationCache(counters)
    cache.begin(10, is_expecting=False)
    cache.add(prepared(10, 1))
    assert cache.take((1,)) is None
    assert (counters.num_misses, counters.num_stale_drafts) == (0, 1)


def test_a_draft_serves_once() -> None:
    cache, counters = cache_at(10)
    cache.add(prepared(10, 1))
    cache.take((1,))
    cache.begin(11, is_expecting=False)
    assert (counters.num_wasted_tokens, counters.hit_rate) == (0, 1)
