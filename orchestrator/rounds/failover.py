"""When a request tries another target replica, and when it gives up."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from orchestrator.rounds.commands import Report
from orchestrator.rounds.peer import Replica
from pilotfish.errors import PilotfishError, ResourceExhaustedError

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 4
"""Replicas tried for one verdict. A request that breaks replicas must not break all of them."""


class TargetReplicas(Protocol):
    """The part of a replica pool that is looked at here."""

    def pick(self, avoid: Collection[str] = ()) -> Replica | None: ...


class Failover:
    """One per request."""

    def __init__(self, pool: TargetReplicas, acquire_timeout_s: float) -> None:
        self.num_failovers = 0
        self.avoid: set[str] = set()
        """Ids of replicas that failed the request and seem healthy."""
        self._pool = pool
        self._acquire_timeout_s = acquire_timeout_s
        self._num_attempts = 0
        """Replicas that failed since the last verdict."""
        self._refused_until_s: float | None = None
        """When to give up, since replicas that seemed to have room have refused the sequence."""

    def opened(self) -> None:
        """A replica has taken the sequence."""
        self._refused_until_s = None

    def answered(self) -> None:
        """A verdict came."""
        self._num_attempts = 0

    def leave(self, error: PilotfishError, replica: Replica) -> None:
        """The replica has failed an open sequence. Raises `error` when trying elsewhere is no use."""
        self._num_attempts += 1
        if self._num_attempts >= _MAX_ATTEMPTS:
            raise error
        if replica.is_healthy:
            self.avoid.add(replica.replica_id)
            other = self._pool.pick(self.avoid)
            is_last = other is None or other.replica_id in self.avoid
            if is_last and isinstance(error, ResourceExhaustedError):
                raise error
        self.num_failovers += 1
        _log.info("the target failed, the request goes on elsewhere: %s", error)

    def wait_for_place(
        self, error: PilotfishError, replica: Replica, num_tokens: int, now_s: float, *, has_answered: bool
    ) -> Report:
        """The replica had no place left for a sequence of so many tokens: another orchestrator took the last one.

        Raises `error` when that went on for too long, or the sequence does not fit into the replica at all. An answer
        that has begun waits as long as it takes.
        """
        if self._refused_until_s is None:
            self._refused_until_s = now_s + self._acquire_timeout_s
        capacity = replica.load.num_kv_tokens
        is_too_late = now_s >= self._refused_until_s and not has_answered
        if (capacity and num_tokens >= capacity) or is_too_late:
            raise error
        return Report(replica, "full")
