"""The connections between rank 0 and the others: a Unix socket in a folder that only this user can enter.

Torch-free. Sending costs some 10 us a rank, waking a rank that waits some 50 us.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from pilotfish.errors import InternalError, UnavailableError, error_named
from pilotfish.parallel.messages import Answer, Failed, Hello, Order, answer_decoder, encoder, order_decoder

SOCKET_NAME = "control"
_ACCEPT_POLL_S = 0.2
_DIAL_PAUSE_S = 0.05
_PARENT = os.getppid()
"""Who started this process: another one takes its place when it is gone."""


class RankChannel:
    """Rank 0's end. Not thread-safe."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        """connections: to ranks 1, 2, ... in this order."""
        self._connections = connections

    @property
    def num_ranks(self) -> int:
        """Rank 0 included."""
        return len(self._connections) + 1

    def broadcast(self, order: Order) -> None:
        """Send an order to all ranks. Raises OSError when one is gone."""
        data = encoder.encode(order)
        for connection in self._connections:
            connection.send_bytes(data)

    def collect(self) -> list[Answer]:
        """One answer of each rank, in their order.

        Raises: the PilotfishError that a rank failed with; UnavailableError when one is gone.
        """
        return [self._receive(rank) for rank in range(1, self.num_ranks)]

    def wait_for_loss(self, timeout_s: float | None = None) -> list[int]:
        """Ranks that have hung up, after waiting for one to (None: as long as it takes). Reads nothing."""
        return _hung_up(dict(enumerate(self._connections, start=1)), timeout_s)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _receive(self, rank: int) -> Answer:
        try:
            answer = answer_decoder.decode(self._connections[rank - 1].recv_bytes())
        except (EOFError, OSError):
            raise UnavailableError(f"rank {rank} of {self.num_ranks} ended before it was ready") from None
        if isinstance(answer, Failed):
            raise error_named(answer.kind, answer.message)
        return answer


class RankPeer:
    """The end of a rank from 1 on. Its methods raise EOFError or OSError when rank 0 is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wait_for_loss(self, timeout_s: float | None = None) -> list[int]:
        """Rank 0 if it has hung up, after waiting for that. Reads nothing."""
        return _hung_up({0: self._connection}, timeout_s)

    def send(self, answer: Answer) -> None:
        self._connection.send_bytes(encoder.encode(answer))

    def receive(self) -> Order:
        """The next order; waits for it."""
        return order_decoder.decode(self._connection.recv_bytes())

    def close(self) -> None:
        self._connection.close()


def accept_ranks(listener: socket.socket, num_ranks: int, timeout_s: float, check: Callable[[], None]) -> RankChannel:
    """Wait until ranks 1 to num_ranks - 1 have connected; check() raises when one never will.

    Raises: UnavailableError after timeout_s, or when a rank connects and ends.
    """
    found: dict[int, Connection] = {}
    deadline = time.monotonic() + timeout_s
    listener.settimeout(_ACCEPT_POLL_S)
    while len(found) < num_ranks - 1:
        missing = sorted(set(range(1, num_ranks)) - found.keys())
        try:
            accepted, _ = listener.accept()
        except TimeoutError:
            check()
            if time.monotonic() > deadline:
                raise UnavailableError(f"ranks {missing} did not start within {timeout_s:.0f} s") from None
            continue
        accepted.setblocking(True)
        connection = Connection(accepted.detach())
        which = f"rank {missing[0]}" if len(missing) == 1 else f"one of the ranks {missing}"
        try:
            rank = _introduced(connection, deadline)
        except TimeoutError:
            raise UnavailableError(f"{which} said nothing within {timeout_s:.0f} s; its log says why") from None
        except (EOFError, OSError):
            check()  # who started it may know more
            raise UnavailableError(f"{which} ended before it was ready; its log says why") from None
        if rank not in missing:
            raise InternalError(f"a rank introduced itself as {rank}; ranks {missing} were expected")
        found[rank] = connection
    return RankChannel([found[rank] for rank in sorted(found)])


def _introduced(connection: Connection, deadline: float) -> int:
    """The number that a rank gives itself. Raises TimeoutError after the deadline, EOFError or OSError when it ends."""
    if not connection.poll(max(0.0, deadline - time.monotonic())):
        raise TimeoutError
    hello = answer_decoder.decode(connection.recv_bytes())
    if not isinstance(hello, Hello):
        raise InternalError(f"a rank introduced itself with {type(hello).__name__}")
    return hello.rank


def listen(folder: Path) -> socket.socket:
    """Where ranks connect, in a folder of our own."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / SOCKET_NAME))
    listener.listen()
    return listener


def dial(folder: Path, rank: int, timeout_s: float) -> RankPeer:
    """Connect to rank 0, which may not listen yet. Raises UnavailableError after timeout_s, and when the process that
    started this one is gone."""
    deadline = time.monotonic() + timeout_s
    while True:
        dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            dialled.connect(str(folder / SOCKET_NAME))
            break
        except (FileNotFoundError, ConnectionRefusedError):
            dialled.close()
            if time.monotonic() > deadline:
                raise UnavailableError(f"rank 0 did not listen in {folder} within {timeout_s:.0f} s") from None
            if os.getppid() != _PARENT:
                raise UnavailableError(f"who started rank {rank} is gone") from None
            if not folder.is_dir():
                raise UnavailableError(f"rank 0 is gone, and {folder} with it") from None
            time.sleep(_DIAL_PAUSE_S)
    peer = RankPeer(Connection(dialled.detach()))
    peer.send(Hello(rank))
    return peer


def _hung_up(connections: Mapping[int, Connection], timeout_s: float | None) -> list[int]:
    poll = select.poll()
    ranks = {connection.fileno(): rank for rank, connection in connections.items()}
    for descriptor in ranks:
        poll.register(descriptor, 0)  # a hang-up is always reported
    events = poll.poll(None if timeout_s is None else 1000 * timeout_s)
    return sorted(ranks[descriptor] for descriptor, _ in events)
