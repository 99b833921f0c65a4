"""A pool of replicas in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

from pilotfish.errors import ResourceExhaustedError, UnavailableError
from tests.support.memory_replicas import MemoryLink

LinkT = TypeVar("LinkT", bound=MemoryLink)


class MemoryPool(Generic[LinkT]):
    """The first healthy one with room is picked, of those that are not to be avoided if there is one."""

    def __init__(self, *links: LinkT) -> None:
        self.links = list(links)
        self.absence_reason = "there is no replica"
        self.acquisitions: list[tuple[tuple[int, ...], bool]] = []
        """Tokens of each that asked for a replica, and whether it had begun to answer."""
        self.remembered: list[tuple[str, tuple[int, ...]]] = []

    @property
    def is_full(self) -> bool:
        healthy = [link for link in self.links if link.is_healthy]
        return bool(healthy) and all(link.is_full for link in healthy)

    def pick(self, avoid: Collection[str] = ()) -> LinkT | None:
        healthy = [link for link in self.links if link.is_healthy and not link.is_full]
        return min(healthy, key=lambda link: link.replica_id in avoid, default=None)

    async def acquire(
        self,
        timeout_s: float,
        avoid: Collection[str] = (),
        *,
        token_ids: Sequence[int] = (),
        is_continued: bool = False,
        preferred: str = "",
    ) -> LinkT:
        self.acquisitions.append((tuple(token_ids), is_continued))
        link = self.pick(avoid)
        if link is None:
            is_full = any(link.is_full for link in self.links)
            raise (ResourceExhaustedError if is_full else UnavailableError)(self.absence_reason)
        return link

    def remember(self, link: LinkT, token_ids: Sequence[int]) -> None:
        self.remembered.append((link.replica_id, tuple(token_ids)))
