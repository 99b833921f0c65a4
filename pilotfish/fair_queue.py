"""Who is next among what waits: fair to clients by what they were served.

A fair queue with virtual time (Goyal et al. 1996) in the currency of the virtual token counter (Sheng et al., "Fairness
in Serving Large Language Models", OSDI 2024): a client's counter grows by what its requests cost, estimated when one is
taken out and corrected when it has ended; the client with the smallest counter is next. A client that was away, or has
a new name, starts where the queue stands, which goes on with every item by what it cost each of those who waited:
nobody saves up service, owes for what it used while nobody waited, or goes before others for ever by changing its name.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_MAX_IDLE_CLIENTS = 4096
"""Counters kept of clients with nothing in the queue. Names are the clients' own invention: they must not fill
the memory."""

ItemT = TypeVar("ItemT")


@dataclass(slots=True)
class _Client(Generic[ItemT]):
    client_id: str
    counter: float
    """Costs of what was served, and of the service that was missed by being away."""
    waiting: deque[tuple[ItemT, float]] = field(default_factory=deque)
    """Waiting items with their costs, oldest first."""


class FairQueue(Generic[ItemT]):
    """Items of clients, first in first out for each of them. Unbounded: whoever fills it counts."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client[ItemT]] = OrderedDict()
        """Least recently seen first."""
        self._backlogged: dict[str, _Client[ItemT]] = {}
        """Clients with items that wait."""
        self._start = 0.0
        """Where the queue stands while the item that was taken out last is served."""
        self._step = 0.0
        """What that item adds to it."""
        self._num_items = 0

    def __len__(self) -> int:
        return self._num_items

    def num_items(self, client_id: str) -> int:
        """Items of one client."""
        client = self._backlogged.get(client_id)
        return 0 if client is None else len(client.waiting)

    def push(self, client_id: str, item: ItemT, cost: float) -> None:
        """Let an item of the client wait. cost: in any unit, the queue's own, as far as it is known."""
        client = self._seen(client_id)
        if not client.waiting:
            first = min((other.counter for other in self._backlogged.values()), default=self._start)
            client.counter = max(client.counter, min(self._start, first))
            self._backlogged[client_id] = client
        client.waiting.append((item, cost))
        self._num_items += 1

    def pop(self) -> tuple[str, ItemT, float]:
        """Take the next item out and charge its client: its name, the item, and the cost.

        Raises IndexError when nothing waits.
        """
        if not self._backlogged:
            raise IndexError("the queue is empty")
        client = min(self._backlogged.values(), key=lambda client: client.counter)
        item, cost = client.waiting.popleft()
        self._num_items -= 1
        self._start = max(self._start + self._step, client.counter)
        self._step = cost / len(self._backlogged)
        if not client.waiting:
            del self._backlogged[client.client_id]
        client.counter += cost
        return client.client_id, item, cost

    def drop(self) -> ItemT:
        """Take out the newest item of the client that has most of them, of several the one that came last.

        Raises ValueError when nothing waits.
        """
        client = max(reversed(self._backlogged.values()), key=lambda client: len(client.waiting))
        item, _ = client.waiting[-1]
        self.remove(client.client_id, item)
        return item

    def remove(self, client_id: str, item: ItemT) -> None:
        """Forget an item that does not want to wait any more. Idempotent."""
        client = self._backlogged.get(client_id)
        if client is None:
            return
        found = next((entry for entry in client.waiting if entry[0] is item), None)
        if found is None:
            return
        client.waiting.remove(found)
        self._num_items -= 1
        if not client.waiting:
            del self._backlogged[client_id]

    def correct(self, client_id: str, difference: float) -> None:
        """What an item that was taken out has cost beyond (or, negative, below) its estimate."""
        client = self._clients.get(client_id)
        if client is not None:
            client.counter += difference
            if not self._backlogged:
                self._start = max(self._start, client.counter)

    def _seen(self, client_id: str) -> _Client[ItemT]:
        client = self._clients.get(client_id)
        if client is None:
            self._drop_idle()
            client = self._clients[client_id] = _Client(client_id, self._start)
        self._clients.move_to_end(client_id)
        return client

    def _drop_idle(self) -> None:
        """Forget the least recently seen client that has nothing in the queue, if there are too many."""
        if len(self._clients) < _MAX_IDLE_CLIENTS:
            return
        idle = next((client_id for client_id in self._clients if client_id not in self._backlogged), None)
        if idle is not None:
            del self._clients[idle]
