"""The block pool against a plain model of what it promises."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilotfish.engine.core.cache.block_pool import ROOT_HASH, BlockPool, hash_block

SIZE = 2
NUM_BLOCKS = 9


class PoolMachine(RuleBasedStateMachine):
    """Holders allocate, share by prefix, register and free; every block is accounted for at all times."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS, SIZE)
        self.holders: list[list[int]] = []

    @rule(count=st.integers(0, NUM_BLOCKS))
    def allocate(self, count: int) -> None:
        free = self.pool.num_free
        blocks = self.pool.allocate(count)
        if count > free:
            assert blocks is None
            assert self.pool.num_free == free
        else:
            assert blocks is not None
            assert len(set(blocks)) == count
            assert 0 not in blocks
            held = {block for holder in self.holders for block in holder}
            assert not held & set(blocks), "a block was given to two holders"
            self.holders.append(blocks)

    @rule(tokens=st.lists(st.integers(0, 2), max_size=8))
    def match_then_hold(self, tokens: list[int]) -> None:
        blocks = self.pool.match(tokens)
        assert len(blocks) <= len(tokens) // SIZE
        self.holders.append(blocks)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 2), min_size=8, max_size=8))
    def register(self, data: st.DataObject, tokens: list[int]) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        parent = ROOT_HASH
        for index, block in enumerate(holder[:4]):
            parent = hash_block(parent, tokens[index * SIZE : (index + 1) * SIZE])
            self.pool.register(block, parent)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(range(len(self.holders))))
        self.pool.free(self.holders.pop(holder))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def free_several(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from(range(len(self.holders)))))
        expected = self.pool.num_free_without(self.holders[index] for index in chosen)
        for index in sorted(chosen, reverse=True):
            self.pool.free(self.holders.pop(index))
        assert self.pool.num_free == expected

    @invariant()
    def every_block_is_used_or_free(self) -> None:
        held = {block for holder in self.holders for block in holder}
        assert self.pool.num_used == len(held)
        assert self.pool.num_free == NUM_BLOCKS - 1 - len(held)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_freed_prefix_is_found_until_its_space_is_needed() -> None:
    pool = BlockPool(4, SIZE)
    blocks = pool.allocate(2)
    assert blocks is not None
    first = hash_block(ROOT_HASH, [1, 2])
    pool.register(blocks[0], first)
    pool.register(blocks[1], hash_block(first, [3, 4]))
    pool.free(blocks)
    assert pool.num_used == 0
    assert pool.match([1, 2, 3, 4, 5]) == blocks
    pool.free(blocks)
    assert pool.match([3, 4]) == []  # same tokens, other parent
    taken = pool.allocate(2)  # one never used, then the least recently used: the end of the prefix
    assert taken is not None
    assert pool.match([1, 2, 3, 4]) == blocks[:1]


def test_without_prefix_caching_nothing_is_found() -> None:
    pool = BlockPool(3, SIZE, prefix_caching=False)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.register(blocks[0], hash_block(ROOT_HASH, [1, 2]))
    assert pool.match([1, 2]) == []
