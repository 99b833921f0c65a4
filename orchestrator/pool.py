"""The replicas of one pool: a link to each that the directory names, and the choice among them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection

from orchestrator.directory import PoolName, ReplicaDirectory
from orchestrator.link import Connect, ReplicaLink
from pilotfish.errors import ResourceExhaustedError, UnavailableError
from pilotfish.types import ModelInfo

_BUSY = "all its sequences are in use (engine.max_sequences)"


class ReplicaPool:
    """Follows the directory. Made, started and closed on one event loop."""

    def __init__(
        self,
        name: PoolName,
        directory: ReplicaDirectory,
        connect: Connect,
        check: Callable[[ModelInfo], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` raises HandshakeError for a replica whose model does not fit; None takes all."""
        self._name = name
        self._directory = directory
        self._connect = connect
        self._check = check
        self._clock = clock
        self._links: dict[tuple[str, str], tuple[ReplicaLink, asyncio.Task[None]]] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._line = asyncio.Lock()
        self._on_change: list[Callable[[], None]] = []
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to dial what the directory names, now and later."""
        loop = asyncio.get_running_loop()

        def on_directory_change() -> None:
            # The loop of an orchestrator that was torn down may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._follow_directory)

        self._unsubscribe = self._directory.subscribe(self._name, on_directory_change)
        self._follow_directory()

    async def close(self) -> None:
        """Close every link. Idempotent."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        tasks = [task for _, task in self._links.values()] + list(self._retired)
        self._links.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever a replica connects or is lost."""
        self._on_change.append(callback)

    @property
    def links(self) -> tuple[ReplicaLink, ...]:
        """All links, connected or not."""
        return tuple(link for link, _ in self._links.values())

    @property
    def num_connected(self) -> int:
        return sum(link.is_connected for link in self.links)

    @property
    def num_sequences(self) -> int:
        """Sequences that this orchestrator has open on the pool."""
        return sum(link.num_sequences for link in self.links)

    @property
    def absence_reason(self) -> str:
        """Why `pick` finds nothing."""
        links = self.links
        if not links:
            return f"there is no {self._name} replica"
        problems = "; ".join(f"{link.address}: {link.problem or _BUSY}" for link in links)
        return f"no {self._name} replica can be used ({problems})"

    def pick(self, avoid: Collection[str] = ()) -> ReplicaLink | None:
        """The least loaded healthy replica with room; one whose id is in `avoid` only if there is no other."""
        candidates = [link for link in self.links if link.is_healthy and link.has_room]
        # Our own count is exact and immediate; the reported load tells what other orchestrators do.
        return min(
            candidates,
            key=lambda link: (link.replica_id in avoid, link.load.num_sequences_waiting, link.num_sequences),
            default=None,
        )

    async def acquire(self, timeout_s: float, avoid: Collection[str] = ()) -> ReplicaLink:
        """`pick`, waiting in line (first come, first served) until a replica has room.

        Raises after timeout_s: ResourceExhaustedError when all replicas are full, UnavailableError
        when there is none.
        """
        try:
            async with asyncio.timeout(timeout_s), self._line:
                return await self._until(lambda: self.pick(avoid))
        except TimeoutError:
            kind = ResourceExhaustedError if self._find_healthy() else UnavailableError
            raise kind(f"{self.absence_reason}; waited {timeout_s:g} s") from None

    async def connected(self, timeout_s: float) -> ReplicaLink:
        """A healthy replica, with room or without. Raises UnavailableError after timeout_s."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._until(self._find_healthy)
        except TimeoutError:
            raise UnavailableError(f"{self.absence_reason}; waited {timeout_s:g} s") from None

    def _find_healthy(self) -> ReplicaLink | None:
        return next((link for link in self.links if link.is_healthy), None)

    async def _until(self, find: Callable[[], ReplicaLink | None]) -> ReplicaLink:
        while (link := find()) is None:
            await self._changed.wait()
        return link

    def _follow_directory(self) -> None:
        wanted = set(self._directory.replicas(self._name).items())
        for key in [key for key in self._links if key not in wanted]:
            _, task = self._links.pop(key)
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)
            task.cancel()
        for replica_id, address in sorted(wanted - self._links.keys()):
            link = ReplicaLink(replica_id, address, self._connect, self._check, self._notify, self._wake, self._clock)
            self._links[replica_id, address] = (link, asyncio.create_task(link.run()))
        self._notify()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _notify(self) -> None:
        self._wake()
        for callback in self._on_change:
            callback()
