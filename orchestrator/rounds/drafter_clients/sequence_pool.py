"""The draft pool as one sequence sees it: without the replicas that cannot serve it, though they serve others well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from orchestrator.rounds.commands import Report
from orchestrator.rounds.peer import Replica
from pilotfish.messages import SequenceError
from pilotfish.types import SequenceErrorCode


class DraftReplicas(Protocol):
    """The part of a replica pool that is looked at here."""

    @property
    def absence_reason(self) -> str:
        """Why `pick` finds nothing."""

    @property
    def is_full(self) -> bool:
        """Whether replicas serve, and all their places are taken."""

    def pick(self, avoid: Collection[str] = ()) -> Replica | None:
        """One whose id is in `avoid` only without others."""


class SequencePool:
    """Owns which replicas have refused the sequence: they are not asked for it again."""

    def __init__(self, pool: DraftReplicas) -> None:
        self._pool = pool
        self._refusals: dict[str, str] = {}
        """What each of these replicas said."""

    @property
    def absence_reason(self) -> str:
        """Why `pick` finds nothing."""
        replica = self._pool.pick(self._refusals)
        return self._pool.absence_reason if replica is None else self._refusals.get(replica.replica_id, "")

    @property
    def is_full(self) -> bool:
        """See DraftReplicas."""
        return self._pool.is_full

    def pick(self) -> Replica | None:
        """The pool's choice among the replicas that have not refused the sequence."""
        replica = self._pool.pick(self._refusals)
        return None if replica is None or replica.replica_id in self._refusals else replica

    def note(self, error: SequenceError, replica: Replica, num_tokens: int) -> Report | None:
        """What to report of a replica that sent the error; None: nothing, it refuses this sequence and is asked for it
        no more.

        num_tokens: the sequence's, the drafts that were asked for included.
        """
        if _is_refusal(error, replica, num_tokens):
            self._refusals[replica.replica_id] = error.message
            return None
        match error.code:
            case SequenceErrorCode.RESOURCE_EXHAUSTED:
                return Report(replica, "full")  # those who have a place there are served well
            case SequenceErrorCode.UNAVAILABLE:
                return Report(replica, "draining")
            case _:
                return Report(replica, "failure", error.message)


def _is_refusal(error: SequenceError, replica: Replica, num_tokens: int) -> bool:
    """Whether the sequence itself is the reason: asking again, with more tokens, would come to the same."""
    if error.code is SequenceErrorCode.RESOURCE_EXHAUSTED:
        return 0 < replica.load.num_kv_tokens <= num_tokens
    return error.code is SequenceErrorCode.INVALID or bool(error.param)
