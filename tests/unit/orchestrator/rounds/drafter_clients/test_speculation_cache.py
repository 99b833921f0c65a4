"""What becomes of drafts that were made ahead, and how they are counted: every prepared token is used or wasted."""

import pytest

from orchestrator.rounds.drafter_clients.predraft import SpeculationCache
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftCounters
from pilotfish.messages import Predrafted

DRAFT = (7, 8, 9)


@pytest.fixture
def counters() -> PredraftCounters:
    return PredraftCounters()


@pytest.fixture
def cache(counters: PredraftCounters) -> SpeculationCache:
    cache = SpeculationCache(counters)
    cache.begin(10, is_expecting=True)
    return cache


def prepared(token_id: int, base_length: int = 10) -> Predrafted:
    """A draft for the outcome that one draft token is accepted and the target's own is token_id."""
    return Predrafted(1, base_length, (5,), (1,), (token_id,), DRAFT, ())


def test_what_continues_the_committed_tokens_is_a_hit_and_the_rest_is_wasted(
    cache: SpeculationCache, counters: PredraftCounters
) -> None:
    cache.add(prepared(6))
    cache.add(prepared(4))
    draft = cache.take((5, 6))
    assert draft is not None
    assert draft.draft_token_ids == DRAFT
    assert (counters.num_hits, counters.num_misses, counters.num_prepared_tokens) == (1, 0, 6)
    assert counters.num_wasted_tokens == 0, "the round is not over"
    cache.begin(12, is_expecting=True)
    assert counters.num_wasted_tokens == 3
    assert cache.take((5, 6)) is None, "drafts of the round before are gone"
    assert counters.num_misses == 1


def test_a_round_that_expects_nothing_misses_nothing(cache: SpeculationCache, counters: PredraftCounters) -> None:
    cache.begin(10, is_expecting=False)
    cache.add(prepared(6))
    assert cache.take((5, 6)) is None
    assert (counters.num_misses, counters.num_stale_drafts, counters.num_wasted_tokens) == (0, 1, 3)


def test_a_draft_of_another_round_is_stale(cache: SpeculationCache, counters: PredraftCounters) -> None:
    cache.add(prepared(6, base_length=9))
    assert (counters.num_stale_drafts, counters.num_prepared_tokens, counters.num_wasted_tokens) == (1, 3, 3)
    assert cache.take((5, 6)) is None
    cache.begin(12, is_expecting=True)
    assert counters.num_wasted_tokens == 3, "counted once"


def test_a_draft_that_comes_while_it_is_asked_for_is_a_late_hit_or_wasted(
    cache: SpeculationCache, counters: PredraftCounters
) -> None:
    assert cache.take_late(prepared(4), (5, 6)) is None
    assert (counters.num_late_hits, counters.num_prepared_tokens, counters.num_wasted_tokens) == (0, 3, 3)
    draft = cache.take_late(prepared(6), (5, 6))
    assert draft is not None
    assert draft.draft_token_ids == DRAFT
    assert (counters.num_late_hits, counters.num_prepared_tokens, counters.num_wasted_tokens) == (1, 6, 3)
