"""Who is connected over HTTP, and who goes when there is room for no more."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Protocol

from pilotfish.config import PublicSecurityConfig


class Connection(Protocol):
    """What is counted."""

    def abort(self) -> None:
        """End at once."""


@dataclass
class _Group:
    """Connections with a limit of their own."""

    max_connections: int
    num_connections: int = 0
    waiting: dict[Connection, None] = field(default_factory=dict)
    """Connections whose client has to go on, the longest wait first."""

    @property
    def is_full(self) -> bool:
        return self.num_connections >= self.max_connections


class Connections:
    """The open connections of a server, in all and by address.

    One too many takes the place of the one that has waited longest for its client: of the same address if that has its
    share, else of all. A connection that is owed an answer keeps its place.
    """

    def __init__(self, limits: PublicSecurityConfig) -> None:
        self._all = _Group(limits.max_connections)
        self._max_per_address = limits.max_connections_per_address
        self._by_address: dict[str, _Group] = {}
        self._addresses: dict[Connection, str] = {}

    def admit(self, connection: Connection, host: str) -> bool:
        """Count a connection whose client is to begin. False: there is no room. host: where the client is."""
        address = network_of(host)
        group = self._by_address.get(address) or _Group(self._max_per_address)
        for each in (group, self._all):
            if each.is_full and each.waiting:
                longest = next(iter(each.waiting))
                self.remove(longest)
                longest.abort()
            if each.is_full:
                return False
        self._by_address[address], self._addresses[connection] = group, address
        for each in (group, self._all):
            each.num_connections += 1
            each.waiting[connection] = None
        return True

    def wait(self, connection: Connection) -> None:
        """The client has to go on."""
        for group in self._groups_of(connection):
            group.waiting.setdefault(connection)

    def answer(self, connection: Connection) -> None:
        """The client is owed an answer."""
        for group in self._groups_of(connection):
            group.waiting.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        """Idempotent."""
        self.answer(connection)
        for group in self._groups_of(connection):
            group.num_connections -= 1
        address = self._addresses.pop(connection, None)
        if address is not None and not self._by_address[address].num_connections:
            del self._by_address[address]

    def _groups_of(self, connection: Connection) -> tuple[_Group, ...]:
        address = self._addresses.get(connection)
        return () if address is None else (self._by_address[address], self._all)


def network_of(host: str) -> str:
    """The address, or for IPv6 the network that one customer has: its 64 bits name as many hosts as one likes."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
