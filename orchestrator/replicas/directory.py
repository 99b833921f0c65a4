"""The live set of replicas, by pool, those behind DNS names included, and who wants to hear of changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from pilotfish.config import Config, OrchestratorConfig
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

        Names among them are `orchestrator.replicas.directory`' business.
        """
        directory = cls()
        for pool, addresses in _configured(config.orchestrator).items():
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


def _configured(config: OrchestratorConfig) -> dict[PoolName, tuple[str, ...]]:
    return {"target": config.target_addresses, "draft": config.draft_addresses}


_log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The `host:port` of every address that a name has. Raises OSError when it has none, or nobody can say."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolves names as the system does."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = sorted({str(address[0]) for *_, address in found})
    return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses]


class NameFollower:
    """Keeps the directory at what the configured names stand for. Made by `start`, on one event loop."""

    def __init__(self, config: OrchestratorConfig, directory: ReplicaDirectory, resolve: Resolve) -> None:
        self._pools = _configured(config)
        self._directory = directory
        self._interval_s = config.resolve_interval_s
        self._resolve = resolve
        self._known: dict[str, Sequence[str]] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, config: OrchestratorConfig, directory: ReplicaDirectory, resolve: Resolve = resolve_by_system
    ) -> NameFollower:
        """Look every name up once, then again and again until `close`. Without a name nothing happens."""
        self = cls(config, directory, resolve)
        if any(address.startswith(DNS_PREFIX) for addresses in self._pools.values() for address in addresses):
            await self.look_up()
            self._task = asyncio.create_task(self._follow())
        return self

    async def look_up(self) -> None:
        """Resolve all names once and update the directory.

        A name that cannot be resolved stands for what it stood for: a failing DNS server must not cut links that work,
        and a replica that is gone is noticed by its link.
        """
        for pool, addresses in self._pools.items():
            if any(address.startswith(DNS_PREFIX) for address in addresses):
                replicas = [replica for address in addresses for replica in await self._replicas_of(address)]
                self._directory.set_replicas(pool, {replica: replica for replica in replicas})

    async def close(self) -> None:
        """Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _replicas_of(self, address: str) -> Sequence[str]:
        if not address.startswith(DNS_PREFIX):
            return (address,)
        host, _, port = address.removeprefix(DNS_PREFIX).rpartition(":")
        try:
            found = await self._resolve(host, int(port))
        except (OSError, UnicodeError) as error:  # the latter: no name could be so
            if address not in self._known:
                _log.warning("%s has no address yet: %s", address, error)
                self._known[address] = ()
        else:
            if found != self._known.get(address, ()):
                _log.info("%s is now %s", address, ", ".join(found))
            self._known[address] = found
        return self._known[address]

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look_up()
