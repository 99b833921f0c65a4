"""The live set of replicas, by pool, and who wants to hear of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Literal

from pilotfish.config import Config
from pilotfish.config.orchestrator import DNS_PREFIX

PoolName = Literal["target", "draft"]


class ReplicaDirectory:
    """Which replicas exist and where they listen.

    The discovery writes it (Ray's request router, or `from_config` with fixed addresses), the
    pools read it. Safe to write from any thread: Ray's router runs on a thread of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replicas: dict[PoolName, dict[str, str]] = {"target": {}, "draft": {}}
        self._subscribers: dict[PoolName, list[Callable[[], None]]] = {"target": [], "draft": []}

    @classmethod
    def from_config(cls, config: Config) -> ReplicaDirectory:
        """A directory of the addresses that the configuration has; an address is its own id.

        Names among them are `orchestrator.replicas.names`' business.
        """
        directory = cls()
        pools: dict[PoolName, tuple[str, ...]] = {
            "target": config.orchestrator.target_addresses,
            "draft": config.orchestrator.draft_addresses,
        }
        for pool, addresses in pools.items():
            directory.set_replicas(pool, {each: each for each in addresses if not each.startswith(DNS_PREFIX)})
        return directory

    def replicas(self, pool: PoolName) -> Mapping[str, str]:
        """A copy of {replica_id: "host:port"}."""
        with self._lock:
            return dict(self._replicas[pool])

    def set_replicas(self, pool: PoolName, replicas: Mapping[str, str]) -> None:
        """Replace the pool's {replica_id: "host:port"}; subscribers are called if it changed."""
        with self._lock:
            if self._replicas[pool] == replicas:
                return
            self._replicas[pool] = dict(replicas)
            subscribers = tuple(self._subscribers[pool])
        for callback in subscribers:
            callback()

    def subscribe(self, pool: PoolName, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the writer's thread after each change; returns what ends it."""
        with self._lock:
            self._subscribers[pool].append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._subscribers[pool]:
                    self._subscribers[pool].remove(callback)

        return unsubscribe
