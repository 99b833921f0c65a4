"""Which blocks each sequence holds: growth, prefix hits, registration, rewinding, release."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.engine.core.cache.block_pool import BlockPool, hash_block
from pilotfish.engine.core.sequence import EngineSequence


class KVCache:
    """Moves blocks between the pool and sequences; keeps EngineSequence's invariant."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self._size = pool.block_size

    def attach_prefix(self, sequence: EngineSequence) -> None:
        """Give a sequence without blocks the cached blocks of its longest prefix."""
        # The last token is always computed: its logits are wanted, and they are not cached.
        blocks = self.pool.match(sequence.tokens[:-1], sequence.root_hash)
        sequence.block_ids = blocks
        sequence.num_computed_tokens = sequence.num_cached_tokens = len(blocks) * self._size
        sequence.num_registered_blocks = 0
        self.register_full_blocks(sequence, sequence.num_computed_tokens)

    def num_missing(self, sequence: EngineSequence, num_tokens: int) -> int:
        """Blocks that the first num_tokens tokens need beyond the sequence's; below 0: it has more."""
        return -(-num_tokens // self._size) - len(sequence.block_ids)

    def reserve(self, sequence: EngineSequence, num_tokens: int) -> bool:
        """Make room for the first num_tokens tokens; False (and no change) when blocks run out."""
        missing = self.num_missing(sequence, num_tokens)
        if missing <= 0:
            return True
        blocks = self.pool.allocate(missing)
        if blocks is None:
            return False
        sequence.block_ids.extend(blocks)
        return True

    def register_full_blocks(self, sequence: EngineSequence, num_committed: int) -> None:
        """Make the full blocks among the first num_committed computed tokens findable."""
        num_full = min(num_committed, sequence.num_computed_tokens) // self._size
        for index in range(sequence.num_registered_blocks, num_full):
            token_ids = sequence.tokens[index * self._size : (index + 1) * self._size]
            sequence.last_hash = hash_block(sequence.last_hash, token_ids)
            self.pool.register(sequence.block_ids[index], sequence.last_hash)
        sequence.num_registered_blocks = max(sequence.num_registered_blocks, num_full)

    def path_moves(self, sequence: EngineSequence, start: int, path: Sequence[int]) -> list[tuple[int, int]]:
        """(from, to) slots that bring a tree's accepted path into the order of the text.

        The tree's nodes lie from position start on, in their own order; path: the accepted ones.
        """
        moves = []
        for depth, node in enumerate(path):
            if depth != node:
                moves.append((self._slot(sequence, start + node), self._slot(sequence, start + depth)))
                assert not self.pool.is_registered(moves[-1][1] // self._size), "a shared block is never written"
        return moves

    def _slot(self, sequence: EngineSequence, position: int) -> int:
        return sequence.block_ids[position // self._size] * self._size + position % self._size

    def rewind(self, sequence: EngineSequence, length: int) -> None:
        """Truncate to length tokens. Blocks that others may find are let go, never overwritten."""
        sequence.truncate(length)
        self.recompute_from(sequence, length)

    def recompute_from(self, sequence: EngineSequence, length: int) -> None:
        """Count no more than the first length tokens as computed; the next step writes from there on."""
        sequence.num_computed_tokens = min(sequence.num_computed_tokens, length)
        num_kept = length // self._size
        if num_kept < sequence.num_registered_blocks:
            # The block at the cut is shared: recompute its head in a fresh one.
            self.pool.free(sequence.block_ids[num_kept:])
            del sequence.block_ids[num_kept:]
            sequence.num_computed_tokens = num_kept * self._size
            sequence.num_registered_blocks = 0
            sequence.last_hash = sequence.root_hash
            self.register_full_blocks(sequence, sequence.num_computed_tokens)

    def release(self, sequence: EngineSequence) -> None:
        """Give back every block; the sequence can start again from nothing."""
        self.pool.free(sequence.block_ids)
        sequence.block_ids = []
        sequence.forget_in_target_drafts()
        sequence.num_computed_tokens = 0
        sequence.num_registered_blocks = 0
        sequence.last_hash = sequence.root_hash
