"""The target as one request sees it: it answers, whichever replica does the work."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from typing import Protocol

import msgspec

from orchestrator.answers.sequence import Sequence, check_verdict
from orchestrator.drafting.drafter import DraftBlock
from orchestrator.drafting.feature_feed import FeatureFeed
from orchestrator.replicas.remote_sequence import Link, RemoteSequence
from orchestrator.round import RemoteRound
from pilotfish.errors import (
    InternalError,
    InvalidRequestError,
    PilotfishError,
    ResourceExhaustedError,
    UnavailableError,
)
from pilotfish.features import FeatureRequest
from pilotfish.messages import Opened, PreparedDrafts, SequenceError, Verdict
from pilotfish.rpc.replica.validation import check_prepared
from pilotfish.types import (
    BLOCK_SIZE,
    Limits,
    ModelInfo,
    SequenceErrorCode,
    TreeRequest,
)

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 4
"""Replicas tried for one verdict. A request that breaks replicas must not break all of them."""

_CUT_IN_ERRORS = (SequenceErrorCode.STALE, SequenceErrorCode.INVALID)
"""A draft that cuts in may come after the run's end; whatever is wrong with it, the run itself goes on."""

_ERRORS: dict[SequenceErrorCode, type[PilotfishError]] = {
    SequenceErrorCode.UNKNOWN_SEQUENCE: UnavailableError,
    SequenceErrorCode.STALE: InternalError,
    SequenceErrorCode.INVALID: InvalidRequestError,
    SequenceErrorCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    SequenceErrorCode.UNAVAILABLE: UnavailableError,
    SequenceErrorCode.INTERNAL: InternalError,
}


class TargetPool(Protocol):
    """The part of a replica pool that a target needs."""

    def pick(self, avoid: Collection[str] = ()) -> Link | None: ...

    async def acquire(
        self,
        timeout_s: float,
        avoid: Collection[str] = (),
        *,
        token_ids: SequenceOf[int] = (),
        is_continued: bool = False,
    ) -> Link: ...

    def remember(self, link: Link, token_ids: SequenceOf[int]) -> None: ...


class RemoteTarget:
    """One request's sequence on the target pool. It survives its replica.

    When a replica is lost, drains or fails, the sequence is opened elsewhere with its committed
    tokens and the round is asked for again: in greedy and coupled mode the text goes on unchanged.
    """

    def __init__(
        self,
        pool: TargetPool,
        *,
        acquire_timeout_s: float,
        max_run_tokens: int,
        features: FeatureFeed | None = None,
        tree: TreeRequest | None = None,
    ) -> None:
        """`max_run_tokens` bounds what a client that reads slowly leaves waiting in memory.

        tree: how the drafts may branch that the target makes for itself.
        """
        self._tree = tree
        self._pool = pool
        self._features = features or FeatureFeed()
        self._acquire_timeout_s = acquire_timeout_s
        self._max_run_tokens = max_run_tokens
        self._remote: RemoteSequence | None = None
        self._sequence: Sequence | None = None
        """What is open there."""
        self._model: ModelInfo
        self._limits: Limits
        """Of the replica."""
        self._is_opened = False
        """The replica has taken it."""
        self.goes_on = False
        """Whether the replica verifies already what was handed on for the last verdict."""
        self._is_in_run = True
        """Whether it decodes plainly, so that nothing can be handed on."""
        self._avoid: set[str] = set()
        self._refused_until_s: float | None = None
        """When to give up, since replicas that seemed to have room have refused the sequence."""
        self.num_cached_tokens = 0
        """Prompt tokens found in a prefix cache, at the first opening."""
        self.num_failovers = 0
        self.queue_time_ns = 0
        """The wait for a replica with room, and the first step's wait on it."""
        self.has_answered = False

    def verify(self, sequence: Sequence, draft: DraftBlock) -> RemoteRound:
        """One verdict on the draft; a plain step where the draft is empty."""
        begun_on, self.goes_on = self._remote if self.goes_on else None, False
        self._is_in_run = False
        return RemoteRound(self, sequence, draft, num_tokens=1, begun_on=begun_on)

    def decode(self, sequence: Sequence, num_tokens: int, num_in_target_drafts: int = 0) -> RemoteRound:
        """A verdict per step, for up to num_tokens tokens, without a round trip between them.

        num_in_target_drafts: drafts that the target may make for itself in a step.
        """
        self._is_in_run = True
        return RemoteRound(
            self,
            sequence,
            DraftBlock(),
            num_tokens=min(num_tokens, self._max_run_tokens),
            max_run_tokens=self._max_run_tokens,
            num_in_target_drafts=num_in_target_drafts,
            tree=self._tree,
        )

    def hand_on(self, drafts: PreparedDrafts) -> None:
        """Let the replica go on with them, without a round trip, where the verification under way ends as foreseen."""
        remote = self._remote
        if remote is None or not remote.is_usable or self._is_in_run or not self._limits.takes_prepared_drafts:
            return
        # The drafter may be wrong, or of another vocabulary; and where sending fails, the next verdict will not come
        # either, and tells why.
        with contextlib.suppress(PilotfishError):
            check_prepared(drafts, self._model, self._limits)
            remote.send(msgspec.structs.replace(drafts, sequence_id=remote.sequence_id))

    @property
    def link(self) -> Link | None:
        """Where the sequence is now; None while it is nowhere."""
        return None if self._remote is None else self._remote.link

    @property
    def can_move(self) -> bool:
        """Whether the sequence, once closed, can be opened again: where it is, or on another replica."""
        return not self._is_unwelcome or self._pool.pick() is not None

    @property
    def should_leave(self) -> bool:
        """Whether the replica drains or fails, and another takes the sequence."""
        return self._is_unwelcome and self.can_move

    @property
    def _is_unwelcome(self) -> bool:
        return self._remote is not None and self._remote.is_usable and not self._remote.is_welcome

    @property
    def has_waiting_verdict(self) -> bool:
        """Whether the next verdict has come already."""
        return self._remote is not None and self._remote.has_waiting_verdict

    def close(self) -> None:
        """Free what the replica holds. Idempotent."""
        remote, self._remote = self._remote, None
        self.goes_on = False
        if remote is None:
            return
        if self._sequence is not None and remote.is_usable:
            self._pool.remember(remote.link, self._sequence.tokens_since(0))
        remote.close()

    async def opened(self, sequence: Sequence) -> RemoteSequence:
        """The open sequence on a replica. Raises what TargetPool.acquire does."""
        remote = self._remote
        if remote is not None and remote.is_usable and not self.should_leave:
            return remote
        self.close()
        asked_ns = time.monotonic_ns()
        link = await self._pool.acquire(
            self._acquire_timeout_s,
            self._avoid,
            token_ids=sequence.tokens_since(0),
            is_continued=self.has_answered,
        )
        if not self.has_answered:
            self.queue_time_ns += time.monotonic_ns() - asked_ns
        self._sequence, self._is_opened = sequence, False
        remote = self._remote = RemoteSequence(link, max_events=self._max_run_tokens + 8)
        self._model, self._limits = link.model, link.limits
        remote.send(sequence.opening(remote.sequence_id))
        return remote

    def feature_request(self, remote: RemoteSequence, length: int) -> FeatureRequest | None:
        """What the drafter lacks, to go with a command on length tokens."""
        return self._features.request(remote.link.model, length)

    async def verdict(self, remote: RemoteSequence, sequence: Sequence) -> Verdict:
        """The next verdict. Raises the PilotfishError that came instead."""
        while not isinstance(event := await remote.receive(), Verdict):
            self._note(event, remote)
        check_verdict(event, sequence, self._model, self._limits)
        self.goes_on = event.num_next_draft_tokens > 0
        if not self.has_answered:
            self.has_answered = True
            self.queue_time_ns += event.timings.queue_time_ns
        if event.features is not None:
            self._features.add(event.features)
        return event

    def recover(self, error: PilotfishError, num_attempts: int) -> bool:
        """Leave the replica that failed; False if that was no attempt to answer: it had no place left.

        Raises `error` when trying elsewhere is no use.
        """
        failed, self._remote = self._remote, None
        self.goes_on = False
        if failed is None:
            # No replica came in time: the pool has waited already.
            raise error
        failed.close()
        if isinstance(error, InvalidRequestError):
            raise error
        is_exhausted = isinstance(error, ResourceExhaustedError)
        if is_exhausted and not self._is_opened:
            self._wait_for_place(error, failed.link)
            return False
        if num_attempts >= _MAX_ATTEMPTS:
            raise error
        if failed.link.is_healthy:
            self._avoid.add(failed.link.replica_id)
            other = self._pool.pick(self._avoid)
            if is_exhausted and (other is None or other.replica_id in self._avoid):
                raise error
        self.num_failovers += 1
        _log.info("the target failed, the request goes on elsewhere: %s", error)
        return True

    def _wait_for_place(self, error: PilotfishError, link: Link) -> None:
        """Have the pool wait: another orchestrator took the replica's last place.

        Raises `error` when that went on for too long, or the sequence does not fit into the replica at all. An answer
        that has begun waits as long as it takes, as in TargetPool.acquire.
        """
        assert self._sequence is not None
        now_s = time.monotonic()
        if self._refused_until_s is None:
            self._refused_until_s = now_s + self._acquire_timeout_s
        capacity = link.load.num_kv_blocks_total * BLOCK_SIZE
        is_too_late = now_s >= self._refused_until_s and not self.has_answered
        if (capacity and self._sequence.length >= capacity) or is_too_late:
            raise error
        link.report_full()

    def _note(self, event: object, remote: RemoteSequence) -> None:
        if isinstance(event, Opened):
            self._is_opened = True
            self._refused_until_s = None
            if not self.has_answered:
                self.num_cached_tokens = event.num_cached_tokens
        elif isinstance(event, SequenceError):
            if event.code in _CUT_IN_ERRORS and event.base_length in remote.cut_in_lengths:
                _log.debug("a draft that cut in came to nothing: %s", event.message)
                return
            if event.code is SequenceErrorCode.UNAVAILABLE:
                remote.link.report_draining()
            error = _ERRORS[event.code](f"target replica {remote.link.replica_id}: {event.message}")
            if isinstance(error, InvalidRequestError):
                error.param = event.param or None
            raise error
