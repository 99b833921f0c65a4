"""The choice among replicas that could take a sequence: pure, on what is known of their load and caches."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.replicas.mailbox import Link
from pilotfish.config import RoutingConfig
from pilotfish.types import BLOCK_SIZE, LoadReport

_MAX_HASHED_BLOCKS = 2048
"""Blocks of one sequence that are hashed. Further tokens do not change the choice; these take about 0.4 ms."""

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


ReplicaT = TypeVar("ReplicaT", bound=Link)


@dataclass
class RoutingCounters:
    """What was decided so far."""

    num_by_prefix: int = 0
    """Sequences that went where their prefix is cached."""
    num_by_load: int = 0
    """Sequences that went to the least loaded replica."""
    num_matched_blocks: int = 0
    """Whole blocks of the sequences routed that were probably cached where they went."""


class LeastLoadedRouter:
    """The replica with the fewest sequences; of equals the one with the most free KV blocks, then any."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self.counters = RoutingCounters()

    def prefix(self, token_ids: Sequence[int]) -> PrefixHashes:  # noqa: ARG002
        """What `choose` wants to know of a sequence."""
        return ()

    def choose(
        self,
        replicas: Sequence[ReplicaT],
        prefix: PrefixHashes,  # noqa: ARG002
        preferred: str = "",
    ) -> ReplicaT | None:
        """None if there is no replica. preferred: the id that is taken among equals."""
        return min(replicas, key=lambda replica: self._load_key(replica, preferred), default=None)

    def record(self, replica: Link, prefix: PrefixHashes, *, is_new: bool) -> None:  # noqa: ARG002
        """Tokens with this prefix went to the replica. is_new: it was just chosen for them."""
        self.counters.num_by_load += is_new

    def forget(self, replica_id: str) -> None:
        """The replica is gone, and its cache with it. Idempotent."""

    def _load_key(self, replica: Link, preferred: str) -> tuple[int, float, bool, float]:
        # Chance last: orchestrators that know the same must not all choose the same.
        return num_open(replica), kv_usage(replica.load), replica.replica_id != preferred, self._rng.random()


class PrefixAwareRouter(LeastLoadedRouter):
    """The replica with most of the prompt in its cache, among those that are not much busier than the least loaded.

    After SGLang's cache-aware router, whose thresholds it takes; but a replica that is too busy is left out
    by itself, where SGLang's falls back to the shortest queue for all as soon as one is.
    """

    def __init__(self, config: RoutingConfig, rng: random.Random | None = None) -> None:
        super().__init__(rng)
        self._config = config
        self._affinity = PrefixAffinity()

    def prefix(self, token_ids: Sequence[int]) -> PrefixHashes:
        return hash_prefix(token_ids)

    def choose(self, replicas: Sequence[ReplicaT], prefix: PrefixHashes, preferred: str = "") -> ReplicaT | None:
        if not prefix or len(replicas) < 2:
            return super().choose(replicas, prefix, preferred)
        limit = self._load_limit(replicas)
        best: ReplicaT | None = None
        best_key: tuple[float, ...] = ()
        for replica in replicas:
            num_matching = self._affinity.num_matching(replica.replica_id, prefix)
            if num_matching < self._config.cache_threshold * len(prefix) or num_matching == 0:
                continue
            if num_open(replica) > limit or kv_usage(replica.load) > self._config.max_kv_usage:
                continue
            key = (-num_matching, *self._load_key(replica, preferred))
            if best is None or key < best_key:
                best, best_key = replica, key
        return super().choose(replicas, prefix, preferred) if best is None else best

    def record(self, replica: Link, prefix: PrefixHashes, *, is_new: bool) -> None:
        if is_new:
            num_matching = self._affinity.num_matching(replica.replica_id, prefix)
            is_match = num_matching >= max(1, self._config.cache_threshold * len(prefix))
            self.counters.num_by_prefix += is_match
            self.counters.num_by_load += not is_match
            self.counters.num_matched_blocks += num_matching
        capacity = replica.load.num_kv_blocks_total or self._config.max_prefix_blocks
        self._affinity.record(replica.replica_id, prefix, min(capacity, self._config.max_prefix_blocks))

    def forget(self, replica_id: str) -> None:
        self._affinity.forget(replica_id)

    def _load_limit(self, replicas: Sequence[Link]) -> float:
        least = min(num_open(replica) for replica in replicas)
        return least * self._config.balance_rel_threshold + self._config.balance_abs_threshold


def make_router(config: RoutingConfig) -> LeastLoadedRouter:
    """The configured policy."""
    return PrefixAwareRouter(config) if config.policy == "prefix_aware" else LeastLoadedRouter()


def num_open(replica: Link) -> int:
    """Sequences on a replica, of all orchestrators."""
    return replica.num_sequences + replica.num_other_sequences


def kv_usage(load: LoadReport) -> float:
    """Share of the KV blocks that are in use, in [0, 1]; 0 where none are reported."""
    return load.num_kv_blocks_used / load.num_kv_blocks_total if load.num_kv_blocks_total else 0.0
