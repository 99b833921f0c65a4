"""Which replica takes the next request: the one that holds the fewest, in constant time for any number of them."""

from __future__ import annotations

from pilotfish.planning.replica import Replica


class LeastLoaded:
    """Replicas by the number of requests they hold."""

    def __init__(self, replicas: list[Replica], *, max_sequences: int, kv_cache_tokens: int) -> None:
        self._max_sequences, self._kv_cache_tokens = max_sequences, kv_cache_tokens
        # Dictionaries as ordered sets: equal runs choose equal replicas.
        self._by_load: list[dict[Replica, None]] = [{} for _ in range(max_sequences + 1)]
        self._by_load[0] = dict.fromkeys(replicas)
        self._lowest = 0

    def pick(self, num_kv_tokens: int) -> Replica | None:
        """A least loaded one that has room; None while it has not."""
        while self._lowest < self._max_sequences and not self._by_load[self._lowest]:
            self._lowest += 1
        if self._lowest == self._max_sequences:
            return None
        # The last to come is the cheapest to remove.
        replica = next(reversed(self._by_load[self._lowest]))
        return replica if replica.num_kv_tokens + num_kv_tokens <= self._kv_cache_tokens else None

    def moved(self, replica: Replica, *, before: int, now: int) -> None:
        """The number of requests that it holds has changed."""
        del self._by_load[before][replica]
        self._by_load[now][replica] = None
        self._lowest = min(self._lowest, now)
