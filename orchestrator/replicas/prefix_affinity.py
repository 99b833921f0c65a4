"""Which replica has probably cached which prefix: what this orchestrator has sent where, in blocks.

Approximate by design. The replicas' own caches decide; a wrong guess costs a prefill, never a wrong text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from pilotfish.types import BLOCK_SIZE

_MAX_HASHED_BLOCKS = 2048
"""Of one sequence. Further tokens do not change the choice; hashing these takes about 0.4 ms."""

PrefixHashes = tuple[int, ...]
"""Element i: hash of the blocks 0..i of a sequence."""


def hash_prefix(token_ids: Sequence[int]) -> PrefixHashes:
    """Chained hashes of the whole blocks of token_ids, as many as are looked at."""
    hashes: list[int] = []
    parent = 0
    num_blocks = min(len(token_ids) // BLOCK_SIZE, _MAX_HASHED_BLOCKS)
    for start in range(0, num_blocks * BLOCK_SIZE, BLOCK_SIZE):
        # Not the engine's cryptographic hash: a collision here sends a prompt to the wrong replica, no more.
        parent = hash((parent, *token_ids[start : start + BLOCK_SIZE]))
        hashes.append(parent)
    return tuple(hashes)


class PrefixAffinity:
    """Per replica the prefix blocks that went there last, the least recently used ones forgotten.

    Whoever has a block has the blocks before it: they are used again after it, so they are forgotten after it.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, OrderedDict[int, None]] = {}

    def num_blocks(self, replica_id: str) -> int:
        """Blocks remembered of a replica."""
        return len(self._blocks.get(replica_id, ()))

    def record(self, replica_id: str, hashes: PrefixHashes, max_blocks: int) -> None:
        """A sequence with these blocks went to the replica, which can hold max_blocks."""
        blocks = self._blocks.setdefault(replica_id, OrderedDict())
        for block in reversed(hashes[:max_blocks]):
            blocks[block] = None
            blocks.move_to_end(block)
        while len(blocks) > max_blocks:
            blocks.popitem(last=False)

    def num_matching(self, replica_id: str, hashes: PrefixHashes) -> int:
        """Leading blocks of a sequence that the replica has probably cached."""
        blocks = self._blocks.get(replica_id)
        if not blocks:
            return 0
        low, high = 0, len(hashes)
        while low < high:
            middle = (low + high + 1) // 2
            if hashes[middle - 1] in blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def forget(self, replica_id: str) -> None:
        """The replica is gone, and its cache with it."""
        self._blocks.pop(replica_id, None)
