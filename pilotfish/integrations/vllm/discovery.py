"""The draft replicas behind the configured names: each address of a name with several is one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from orchestrator.replicas.directory import ReplicaDirectory

RESOLVE_INTERVAL_S = 5.0


async def resolve(addresses: Sequence[str]) -> dict[str, str]:
    """{replica id: host:port}. A name with one address, or none just now, stays a name: certificates carry names."""
    replicas: dict[str, str] = {}
    for address in addresses:
        for resolved in await _resolve_one(address):
            replicas[resolved] = resolved
    return replicas


async def follow(addresses: Sequence[str], directory: ReplicaDirectory) -> None:
    """Keep the directory's draft pool up to date, until cancelled."""
    while True:
        directory.set_replicas("draft", await resolve(addresses))
        await asyncio.sleep(RESOLVE_INTERVAL_S)


async def _resolve_one(address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return [address]
    # A host of both families is one replica.
    family = found[0][0]
    ips = sorted({str(sockaddr[0]) for kind, _, _, _, sockaddr in found if kind == family})
    if len(ips) < 2:
        return [address]
    return [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip in ips]
