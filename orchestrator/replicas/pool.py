"""The replicas of one pool: a link to each that the directory names, and the choice among them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence

from orchestrator.replicas.directory import PoolName, ReplicaDirectory
from orchestrator.replicas.link import Connect, ReplicaLink
from orchestrator.replicas.mailbox import Link
from orchestrator.replicas.routing import LeastLoadedRouter, PrefixHashes
from pilotfish.errors import HandshakeError, ResourceExhaustedError, UnavailableError
from pilotfish.types import ModelInfo


class ModelReference:
    """What the first target serves, all others must. The handshake has compared the tokenizers before."""

    def __init__(self) -> None:
        self._first: ModelInfo | None = None

    def check(self, model: ModelInfo) -> None:
        """Raises HandshakeError for a target whose answers would not be those of the others."""
        if self._first is None:
            self._first = model
            return
        for name in ("model_id", "vocab_size", "max_context_tokens", "dtype"):
            expected, actual = getattr(self._first, name), getattr(model, name)
            if expected != actual:
                raise HandshakeError(
                    f"the replica has {name} {actual!r}, the pool's first target {expected!r}: "
                    "give all targets the same configuration, or restart the orchestrator after changing the model"
                )


_BUSY = "all its sequences are in use (engine.max_sequences)"


class ReplicaPool:
    """Follows the directory. Made, started and closed on one event loop."""

    def __init__(
        self,
        name: PoolName,
        directory: ReplicaDirectory,
        connect: Connect,
        check: Callable[[ModelInfo], None] | None = None,
        *,
        router: LeastLoadedRouter | None = None,
        silence_timeout_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` raises HandshakeError for a replica whose model does not fit; None takes all.

        router: chooses among the replicas that take a sequence; None: the least loaded. A replica that is silent
        for silence_timeout_s is lost.
        """
        self._name = name
        self._directory = directory
        self._connect = connect
        self._check = check
        self._clock = clock
        self._silence_timeout_s = silence_timeout_s
        self._links: dict[tuple[str, str], tuple[ReplicaLink, asyncio.Task[None]]] = {}
        self._retired: dict[asyncio.Task[None], ReplicaLink] = {}
        """Links that the directory names no more, until their sequences have left."""
        self._changed = asyncio.Event()
        self._line = asyncio.Lock()
        self._on_change: list[Callable[[], None]] = []
        self._on_room: list[Callable[[], None]] = []
        self.router = router or LeastLoadedRouter()
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

    def on_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever num_places may have grown. It must be quick: a report of load may be the cause."""
        self._on_room.append(callback)

    @property
    def links(self) -> tuple[ReplicaLink, ...]:
        """All links, connected or not."""
        return tuple(link for link, _ in self._links.values())

    @property
    def num_connected(self) -> int:
        return sum(link.is_connected for link in self.links)

    @property
    def connected_ids(self) -> frozenset[str]:
        """Ids of the connected replicas."""
        return frozenset(link.replica_id for link in self.links if link.is_connected)

    @property
    def num_sequences(self) -> int:
        """Sequences that this orchestrator has open on the pool."""
        return sum(link.num_sequences for link in (*self.links, *self._retired.values()))

    @property
    def num_places(self) -> int | None:
        """Sequences that this orchestrator may have open on the pool at once; None without a replica."""
        return sum(link.num_places for link in self.links) if self.num_connected else None

    @property
    def max_draft_tokens(self) -> int:
        """The most draft tokens of a round, wherever it is verified: the least of any replica's; 0 without one."""
        return min((link.limits.max_draft_tokens for link in self.links if link.is_connected), default=0)

    @property
    def absence_reason(self) -> str:
        """Why `pick` finds nothing."""
        links = self.links
        if not links:
            return f"there is no {self._name} replica"
        problems = "; ".join(f"{link.address}: {link.problem or _BUSY}" for link in links)
        return f"no {self._name} replica can be used ({problems})"

    @property
    def is_full(self) -> bool:
        """Whether replicas serve, and all their places are taken."""
        healthy = [link for link in self.links if link.is_healthy]
        return bool(healthy) and not any(link.has_room for link in healthy)

    def pick(self, avoid: Collection[str] = (), prefix: PrefixHashes = (), preferred: str = "") -> ReplicaLink | None:
        """The router's choice among the healthy replicas with room; one whose id is in `avoid` only without others.

        prefix: the router's, of the tokens that are to go there. preferred: id of the one to take among equals.
        """
        candidates = [link for link, _ in self._links.values() if link.is_healthy and link.has_room]
        if avoid:
            candidates = [link for link in candidates if link.replica_id not in avoid] or candidates
        return self.router.choose(candidates, prefix, preferred)

    async def acquire(
        self,
        timeout_s: float,
        avoid: Collection[str] = (),
        *,
        token_ids: Sequence[int] = (),
        is_continued: bool = False,
        preferred: str = "",
    ) -> ReplicaLink:
        """`pick`, waiting in line (first come, first served) until a replica has room.

        token_ids: what is to go there. is_continued: it has begun to answer on a replica that was lost. Such
        requests pass the line, and wait for room as long as it takes. preferred: as for `pick`.

        Raises after timeout_s: ResourceExhaustedError when all replicas are full, UnavailableError
        when there is none.
        """
        prefix = self.router.prefix(token_ids)
        line = contextlib.nullcontext() if is_continued else self._line
        while True:
            try:
                async with asyncio.timeout(timeout_s), line:
                    link = await self._until(lambda: self.pick(avoid, prefix, preferred))
            except TimeoutError:
                is_full = self._find_healthy() is not None
                if is_full and is_continued:
                    continue
                kind = ResourceExhaustedError if is_full else UnavailableError
                raise kind(f"{self.absence_reason}; waited {timeout_s:g} s") from None
            self.router.record(link, prefix, is_new=True)
            return link

    def remember(self, link: Link, token_ids: Sequence[int]) -> None:
        """The replica has computed these tokens: a prompt that begins with them had best go there."""
        self.router.record(link, self.router.prefix(token_ids), is_new=False)

    def expected(self, token_ids: Sequence[int]) -> ReplicaLink | None:
        """The replica that these tokens would go to now; None: there is none with room."""
        return self.pick(prefix=self.router.prefix(token_ids) if len(self._links) > 1 else ())

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
            self._retire(*self._links.pop(key))
        for replica_id, address in sorted(wanted - self._links.keys()):
            link = ReplicaLink(
                replica_id,
                address,
                self._connect,
                self._check,
                self._notify,
                self._wake,
                self._silence_timeout_s,
                self._clock,
            )
            self._links[replica_id, address] = (link, asyncio.create_task(link.run()))
        self._notify()

    def _retire(self, link: ReplicaLink, task: asyncio.Task[None]) -> None:
        """Let the link's sequences end or move: a rolling update takes replicas out before it stops them."""
        self._retired[task] = link
        task.add_done_callback(self._forget_retired)
        if link.is_connected:
            link.retire()
        else:
            task.cancel()

    def _forget_retired(self, task: asyncio.Task[None]) -> None:
        link = self._retired.pop(task)
        # Its last sequence has reported to the router what the replica had computed for it.
        if link.replica_id not in self.connected_ids:
            self.router.forget(link.replica_id)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        for callback in self._on_room:
            callback()

    def _notify(self) -> None:
        for link in self.links:
            if not link.is_connected:
                self.router.forget(link.replica_id)
        self._wake()
        for callback in self._on_change:
            callback()
