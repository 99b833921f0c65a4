from orchestrator.replicas.routing import PrefixAffinity, hash_prefix
from pilotfish.types import BLOCK_SIZE

TOKENS = tuple(range(10 * BLOCK_SIZE))


def test_equal_prefixes_have_equal_hashes_and_no_others() -> None:
    hashes = hash_prefix(TOKENS)
    assert len(set(hashes)) == 10
    assert hash_prefix(TOKENS[: 3 * BLOCK_SIZE + 5]) == hashes[:3]
    changed = hash_prefix((7, *TOKENS[1:]))
    assert not set(changed) & set(hashes)
    assert hash_prefix(list(TOKENS)) == hashes
    assert hash_prefix(TOKENS[: BLOCK_SIZE - 1]) == ()


def test_the_least_recently_used_is_forgotten_its_tail_first() -> None:
    affinity = PrefixAffinity()
    first, second = hash_prefix(TOKENS), hash_prefix(TOKENS[1:])
    affinity.record("a", first, 12)
    affinity.record("a", second, 12)
    assert affinity.num_blocks("a") == 12
    assert affinity.num_matching("a", second) == len(second) == 9
    assert affinity.num_matching("a", first) == 3
    affinity.record("a", first[:3], 12)
    affinity.record("a", hash_prefix(TOKENS[2:]), 12)
    assert affinity.num_matching("a", first) == 3
    assert affinity.num_matching("a", second) == 0
