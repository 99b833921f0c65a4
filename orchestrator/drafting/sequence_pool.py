"""The draft pool as one sequence sees it: without the replicas that cannot serve it, though they serve others well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from orchestrator.replicas.remote_sequence import Link
from pilotfish.messages import SequenceError
from pilotfish.types import BLOCK_SIZE, SequenceErrorCode


class DraftPool(Protocol):
    """The part of a replica pool that drafters need."""

    @property
    def absence_reason(self) -> str:
        """Why `pick` finds nothing."""

    @property
    def is_full(self) -> bool:
        """Whether replicas serve, and all their places are taken."""

    def pick(self, avoid: Collection[str] = ()) -> Link | None:
        """One whose id is in `avoid` only without others."""


class SequencePool:
    """Owns which replicas have refused the sequence: they are not asked for it again."""

    def __init__(self, pool: DraftPool) -> None:
        self._pool = pool
        self._refusals: dict[str, str] = {}
        """What each of these replicas said."""

    @property
    def absence_reason(self) -> str:
        """Why `pick` finds nothing."""
        link = self._pool.pick(self._refusals)
        return self._pool.absence_reason if link is None else self._refusals.get(link.replica_id, "")

    @property
    def is_full(self) -> bool:
        """See DraftPool."""
        return self._pool.is_full

    def pick(self) -> Link | None:
        """The pool's choice among the replicas that have not refused the sequence."""
        link = self._pool.pick(self._refusals)
        return None if link is None or link.replica_id in self._refusals else link

    def note(self, error: SequenceError, link: Link, num_tokens: int) -> bool:
        """Hold an error against the sequence, the place or the replica that it is about; True: it was a refusal.

        num_tokens: of the sequence, the drafts that were asked for included.
        """
        if _is_refusal(error, link, num_tokens):
            self._refusals[link.replica_id] = error.message
            return True
        match error.code:
            case SequenceErrorCode.RESOURCE_EXHAUSTED:
                link.report_full()  # those who have a place there are served well
            case SequenceErrorCode.UNAVAILABLE:
                link.report_draining()
            case SequenceErrorCode.UNKNOWN_SEQUENCE:
                pass  # it is opened again
            case _:
                link.report_failure(error.message)
        return False


def _is_refusal(error: SequenceError, link: Link, num_tokens: int) -> bool:
    """Whether the sequence itself is the reason: asking again, with more tokens, would come to the same."""
    if error.code is SequenceErrorCode.RESOURCE_EXHAUSTED:
        return 0 < link.load.num_kv_blocks_total * BLOCK_SIZE <= num_tokens
    return error.code is SequenceErrorCode.INVALID or bool(error.param)
