"""Blocks of the paged KV cache: reference counts, prefix caching, least-recently-used eviction.

Numbers only; the tensors belong to the decoder. A full block whose tokens are known can be
registered under a hash chained over all tokens before it; it stays findable after its last
reference is gone, until its space is needed.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import chain

BlockHash = bytes

ROOT_HASH: BlockHash = b""
"""The parent of a sequence's first block."""


def salted_root(salt: str) -> BlockHash:
    """What the first block's hash is chained to."""
    return hashlib.blake2b(salt.encode(), digest_size=16).digest() if salt else ROOT_HASH


def hash_block(parent: BlockHash, token_ids: Sequence[int]) -> BlockHash:
    """Hash of a full block given its parent's: equal only if all tokens up to its end are equal."""
    # A cryptographic hash: a collision would hand one user's cache to another's prompt.
    return hashlib.blake2b(parent + array("I", token_ids).tobytes(), digest_size=16).digest()


class BlockPool:
    """A pool of num_blocks blocks of block_size tokens; block 0 is reserved for padding and never handed out."""

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = True) -> None:
        if num_blocks < 2:
            raise ValueError(f"num_blocks is {num_blocks}; it must be at least 2 (block 0 is reserved)")
        self.block_size = block_size
        self._prefix_caching = prefix_caching
        self._num_blocks = num_blocks
        self._references = [0] * num_blocks
        # Ascending order keeps a lone sequence's blocks adjacent.
        self._free: deque[int] = deque(range(1, num_blocks))
        self._cached_free: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._block_of: dict[BlockHash, int] = {}
        self._hash_of: dict[int, BlockHash] = {}

    @property
    def num_usable(self) -> int:
        return self._num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that allocate() can give, cached ones without references included."""
        return len(self._free) + len(self._cached_free)

    def num_free_without(self, holders: Iterable[Sequence[int]]) -> int:
        """What num_free would be if these holders of blocks freed theirs: a block that others hold as well stays."""
        held = Counter(chain.from_iterable(holders))
        return self.num_free + sum(self._references[block] == count for block, count in held.items())

    @property
    def num_used(self) -> int:
        return self.num_usable - self.num_free

    def allocate(self, count: int) -> list[int] | None:
        """A list of count blocks with one reference each; None (and no change) when there are too few."""
        if count > self.num_free:
            return None
        blocks = []
        for _ in range(count):
            block = self._free.popleft() if self._free else self._evict()
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def free(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each. Registered blocks stay findable until evicted."""
        # Last block first: a prefix outlives its continuations.
        for block in reversed(blocks):
            assert self._references[block] > 0, f"block {block} is freed twice"
            self._references[block] -= 1
            if self._references[block] == 0:
                if block in self._hash_of:
                    self._cached_free[block] = None
                else:
                    self._free.append(block)

    def register(self, block: int, block_hash: BlockHash) -> None:
        """Make a full block findable. The first block registered under a hash keeps it."""
        if self._prefix_caching and block_hash not in self._block_of and block not in self._hash_of:
            self._block_of[block_hash] = block
            self._hash_of[block] = block_hash

    def is_registered(self, block: int) -> bool:
        """Whether others may find the block, so that it must not be written again."""
        return block in self._hash_of

    def match(self, token_ids: Sequence[int], root: BlockHash = ROOT_HASH) -> list[int]:
        """Blocks that hold the longest cached prefix of token_ids in whole blocks; adds a reference to each."""
        blocks: list[int] = []
        parent = root
        for start in range(0, len(token_ids) - self.block_size + 1, self.block_size):
            parent = hash_block(parent, token_ids[start : start + self.block_size])
            block = self._block_of.get(parent)
            if block is None:
                break
            self._cached_free.pop(block, None)
            self._references[block] += 1
            blocks.append(block)
        return blocks

    def clear_cache(self) -> None:
        """Forget all registered blocks; those in use stay with their holders."""
        self._free.extend(self._cached_free)
        self._cached_free.clear()
        self._block_of.clear()
        self._hash_of.clear()

    def _evict(self) -> int:
        block, _ = self._cached_free.popitem(last=False)
        del self._block_of[self._hash_of.pop(block)]
        return block
