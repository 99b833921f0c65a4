"""Which blocks a sequence holds through growth, hits, rewinds and release."""

from pilotfish.engine.core.block_pool import BlockPool
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.messages import OpenSequence
from pilotfish.types import SamplingParams

SIZE = 4


def sequence(*tokens: int) -> EngineSequence:
    return EngineSequence(OpenSequence(1, tokens, SamplingParams()))


def computed(cache: KVCache, *tokens: int) -> EngineSequence:
    """A sequence all of whose tokens are computed and registered."""
    result = sequence(*tokens)
    cache.attach_prefix(result)
    assert cache.reserve(result, len(tokens))
    result.num_computed_tokens = len(tokens)
    cache.register_full_blocks(result, len(tokens))
    return result


def test_a_prefix_hit_leaves_the_last_token_to_compute() -> None:
    cache = KVCache(BlockPool(9, SIZE))
    first = computed(cache, 1, 2, 3, 4, 5, 6, 7, 8)
    again = sequence(1, 2, 3, 4, 5, 6, 7, 8)
    cache.attach_prefix(again)
    assert again.block_ids == first.block_ids[:1], "the second block ends with the last token: not attached"
    assert again.num_computed_tokens == again.num_cached_tokens == 4
    longer = sequence(1, 2, 3, 4, 5, 6, 7, 8, 9)
    cache.attach_prefix(longer)
    assert longer.num_computed_tokens == 8


def test_rewinding_into_a_findable_block_lets_it_go() -> None:
    cache = KVCache(BlockPool(9, SIZE))
    owner = computed(cache, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    first_block = owner.block_ids[0]
    cache.rewind(owner, 6)
    assert owner.block_ids == [first_block]
    assert owner.num_computed_tokens == 4
    owner.append([60, 70], committed=True)
    assert cache.reserve(owner, 8)
    owner.num_computed_tokens = 8
    cache.register_full_blocks(owner, 8)
    other = sequence(1, 2, 3, 4, 5, 6, 7, 8, 0)
    cache.attach_prefix(other)
    assert other.num_computed_tokens == 8, "the old continuation is still there"
    assert other.block_ids[1] != owner.block_ids[1]


def test_drafts_are_not_registered() -> None:
    cache = KVCache(BlockPool(9, SIZE))
    owner = sequence(1, 2, 3)
    owner.append([4, 5], committed=False)
    assert cache.reserve(owner, 5)
    owner.num_computed_tokens = 5
    cache.register_full_blocks(owner, owner.num_committed_tokens)
    assert not cache.pool.is_registered(owner.block_ids[0])
