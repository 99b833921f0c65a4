"""A pool of replicas in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pilotfish.errors import ResourceExhaustedError, UnavailableError
from tests.support.memory_replicas import MemoryLink


class MemoryPool:
    """Links in the order given; the first healthy one is picked."""

    def __init__(self, *links: MemoryLink) -> None:
        self.links = list(links)
        self.absence_reason = "there is no replica"
        self.acquisitions: list[tuple[tuple[int, ...], bool]] = []
        """Tokens of each that asked for a replica, and whether it had begun to answer."""
        self.remembered: list[tuple[str, tuple[int, ...]]] = []

    def pick(self, avoid: Collection[str] = ()) -> MemoryLink | None:
        healthy = [link for link in self.links if link.is_healthy and not link.is_full]
        return min(healthy, key=lambda link: link.replica_id in avoid, default=None)

    async def acquire(
        self,
        timeout_s: float,
        avoid: Collection[str] = (),
        *,
        token_ids: Sequence[int] = (),
        is_continued: bool = False,
    ) -> MemoryLink:
        self.acquisitions.append((tuple(token_ids), is_continued))
        link = self.pick(avoid)
        if link is None:
            is_full = any(link.is_full for link in self.links)
            raise (ResourceExhaustedError if is_full else UnavailableError)(self.absence_reason)
        return link

    def remember(self, link: MemoryLink, token_ids: Sequence[int]) -> None:
        self.remembered.append((link.replica_id, tuple(token_ids)))
