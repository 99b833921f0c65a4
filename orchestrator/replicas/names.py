"""Replicas behind a DNS name: a headless Service of Kubernetes has an address for each pod that is ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

from orchestrator.replicas.directory import PoolName, ReplicaDirectory
from pilotfish.config import OrchestratorConfig
from pilotfish.config.orchestrator import DNS_PREFIX

_log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The `host:port` of every address that a name has. Raises OSError when it has none, or nobody can say."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """As the system resolves names."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = sorted({str(address[0]) for *_, address in found})
    return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses]


class NameFollower:
    """Keeps the directory at what the configured names stand for. Made by `start`, on one event loop."""

    def __init__(self, config: OrchestratorConfig, directory: ReplicaDirectory, resolve: Resolve) -> None:
        self._pools: dict[PoolName, tuple[str, ...]] = {
            "target": config.target_addresses,
            "draft": config.draft_addresses,
        }
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
        """Resolve all names once and tell the directory.

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
