"""What is kept of the drafts that come unasked, and what is counted."""

from __future__ import annotations

from orchestrator.drafting.ahead_drafts import SpeculationCache
from orchestrator.drafting.ahead_policy import AheadCounters
from pilotfish.messages import PreparedDrafts


def prepared(base_length: int, *outcomes: tuple[int, ...]) -> PreparedDrafts:
    """Three drafts for each outcome: 70, 71, 72, then 73, 74, 75 and so on."""
    return PreparedDrafts(
        sequence_id=1,
        base_length=base_length,
        verified_token_ids=(1, 2),
        num_accepted_tokens=tuple(len(outcome) - 1 for outcome in outcomes),
        own_token_ids=tuple(outcome[-1] for outcome in outcomes),
        draft_token_ids=tuple(range(70, 70 + 3 * len(outcomes))),
    )


def cache_at(base_length: int) -> tuple[SpeculationCache, AheadCounters]:
    counters = AheadCounters()
    cache = SpeculationCache(counters)
    cache.begin(base_length, is_expecting=True)
    return cache, counters


def test_what_was_not_verified_is_no_outcome() -> None:
    cache, _ = cache_at(10)
    cache.add(prepared(10, (1, 4)))
    assert cache.take((9, 4)) is None
    assert cache.take(()) is None


def test_nothing_is_missed_that_was_not_wished_for() -> None:
    counters = AheadCounters()
    cache = SpeculationCache(counters)
    cache.begin(10, is_expecting=False)
    cache.add(prepared(10, (3,)))
    assert cache.take((3,)) is None
    assert (counters.num_misses, counters.num_stale_drafts) == (0, 1)


def test_what_stands_on_other_tokens_is_stale() -> None:
    cache, counters = cache_at(10)
    cache.begin(12, is_expecting=True)
    cache.add(prepared(10, (1, 3)))
    assert cache.take((1, 3)) is None
    assert (counters.num_stale_drafts, counters.num_wasted_tokens) == (1, 3)
