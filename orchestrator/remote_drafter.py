"""A drafter on a replica of the draft pool: late, absent, wrong or stale, it only costs its round."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Protocol

from orchestrator.drafter import DraftBlock
from orchestrator.feature_feed import FeatureFeed
from orchestrator.remote_sequence import Link, RemoteSequence
from orchestrator.sequence import Sequence
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import OpenSequence, Proposal, Propose, SequenceError
from pilotfish.speculation.lookup import needs_draft_probs
from pilotfish.speculation.trees import DraftTree
from pilotfish.types import SequenceErrorCode, TreeRequest

_log = logging.getLogger(__name__)

_MAX_UNREAD_EVENTS = 64
"""A drafter that is slow but alive answers once per round; unread answers are those of missed rounds."""
_MAX_OPENINGS = 2
"""In one round: a replica that has lost the sequence gets it once more."""
_PROBS_TOLERANCE = 1e-3
"""Sums of float32 probabilities may be this far from 1."""


class DraftPool(Protocol):
    """The part of a replica pool that a drafter needs."""

    @property
    def absence_reason(self) -> str: ...

    def pick(self) -> Link | None: ...


class GarbageError(PilotfishError):
    """A proposal that no working drafter would make."""


class RemoteDrafter:
    """See the module. One per request."""

    def __init__(
        self,
        pool: DraftPool,
        deadline_s: Callable[[int], float],
        features: FeatureFeed | None = None,
        tree: TreeRequest | None = None,
    ) -> None:
        """`deadline_s(num_tokens)` is how long a round may wait for that many draft tokens.

        features: of the target, for proposers that build on them. tree: how drafts may branch; None: chains.
        """
        self._pool = pool
        self._features = features or FeatureFeed()
        self._features_end = 0
        """Where what the replica has got of them ends."""
        self._tree = tree
        self._deadline_s = deadline_s
        self._remote: RemoteSequence | None = None
        self._has_answered = False
        self.num_missed_deadlines = 0

    @property
    def unavailable_reason(self) -> str:
        remote = self._usable_remote()
        link = self._pool.pick() if remote is None else remote.link
        return self._pool.absence_reason if link is None else self._features.shortage(link.model)

    def prepare(self, sequence: Sequence) -> None:
        try:
            self._opened(sequence)
        except PilotfishError as error:
            _log.debug("the drafter could not be prepared: %s", error)

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            async with asyncio.timeout(self._deadline_s(num_tokens)):
                proposal = await self._ask(sequence, num_tokens)
        except TimeoutError:
            self.num_missed_deadlines += 1
            problem = "a proposal missed its deadline"
            # The first answer waits for the prompt to be read, which says nothing of the replica.
            if self._remote is not None and self._has_answered:
                self._remote.link.report_failure(problem)
            self._has_answered = True
            return DraftBlock(elapsed_s=loop.time() - started_s, problem=problem)
        except PilotfishError as error:
            self._give_up(str(error))
            return DraftBlock(elapsed_s=loop.time() - started_s, problem=str(error))
        self._has_answered = True
        probs = proposal.draft_probs if needs_draft_probs(sequence.request.sampling) else ()
        return DraftBlock(proposal.draft_token_ids, probs, loop.time() - started_s, proposal.parents)

    def glance(self, sequence: Sequence, num_tokens: int) -> DraftBlock:  # noqa: ARG002
        """Nothing: an answer takes a round trip."""
        return DraftBlock()

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    async def _ask(self, sequence: Sequence, num_tokens: int) -> Proposal:
        """The proposal on the committed tokens. Raises PilotfishError for every way to fail but lateness."""
        for _ in range(_MAX_OPENINGS):
            remote = self._opened(sequence)
            if remote.link.model.feature_layers and self._features.is_empty:
                # They come with the next verdict.
                return Proposal(remote.sequence_id, sequence.length, ())
            limit = remote.link.limits.max_draft_tokens
            num_tokens = min(num_tokens, limit)
            tree = self._tree and TreeRequest(min(self._tree.max_nodes, limit), self._tree.branching)
            remote.send(
                Propose(
                    sequence_id=remote.sequence_id,
                    base_length=sequence.length,
                    new_token_ids=sequence.tokens_since(remote.known_length),
                    num_draft_tokens=num_tokens,
                    features=self._features.since(self._features_end),
                    tree=tree,
                )
            )
            self._features_end = self._features.end_position
            remote.known_length = sequence.length
            proposal = await self._answer(remote, sequence.length)
            if proposal is None:
                self.close()
                continue
            _check_shape(proposal, num_tokens, tree)
            _check(proposal, sequence, remote.link.model.vocab_size)
            remote.link.report_success()
            return proposal
        raise UnavailableError("the draft replica forgets the sequence again and again")

    async def _answer(self, remote: RemoteSequence, base_length: int) -> Proposal | None:
        """The answer on `base_length`; None if the replica does not know the sequence (any more)."""
        while True:
            event = await remote.receive()
            if isinstance(event, Proposal) and event.base_length == base_length:
                return event
            if isinstance(event, SequenceError):
                if event.code is SequenceErrorCode.UNKNOWN_SEQUENCE:
                    return None
                if event.code is not SequenceErrorCode.STALE or event.base_length == base_length:
                    raise UnavailableError(f"draft replica {remote.link.replica_id}: {event.message}")
            # Anything else is the late answer to an earlier round.

    def _usable_remote(self) -> RemoteSequence | None:
        remote = self._remote
        if remote is None or not remote.is_usable or not remote.link.is_healthy:
            return None
        return remote

    def _opened(self, sequence: Sequence) -> RemoteSequence:
        """The open sequence on a replica, opened with every committed token where there is none."""
        remote = self._usable_remote()
        if remote is not None:
            return remote
        self.close()
        link = self._pool.pick()
        if link is None:
            raise UnavailableError(self._pool.absence_reason)
        remote = self._remote = RemoteSequence(link, max_events=_MAX_UNREAD_EVENTS)
        self._has_answered = False
        self._features_end = 0
        self._features.want(link.model)
        remote.send(
            OpenSequence(
                sequence_id=remote.sequence_id,
                prompt_token_ids=sequence.request.prompt_token_ids,
                output_token_ids=sequence.output_token_ids,
                sampling=sequence.request.sampling,
            )
        )
        remote.known_length = sequence.length
        return remote

    def _give_up(self, reason: str) -> None:
        if self._remote is not None:
            self._remote.link.report_failure(reason)
            self.close()


def _check_shape(proposal: Proposal, num_tokens: int, tree: TreeRequest | None) -> None:
    """Raises GarbageError for more than was asked for, and for what is no tree."""
    num_drafts, parents = len(proposal.draft_token_ids), proposal.parents
    if parents and len(parents) != num_drafts:
        raise GarbageError(f"{num_drafts} draft tokens came with {len(parents)} parents")
    try:
        depth = DraftTree(parents).depth if parents else num_drafts
    except ValueError as error:
        raise GarbageError(str(error)) from None
    max_drafts = num_tokens if tree is None else max(num_tokens, tree.max_nodes)
    if depth > num_tokens or num_drafts > max_drafts:
        raise GarbageError(
            f"{num_drafts} draft tokens of depth {depth} came where {max_drafts} of depth {num_tokens} were asked for"
        )


def _check(proposal: Proposal, sequence: Sequence, vocab_size: int) -> None:
    """Raises GarbageError for what the target must never see."""
    token_ids, probs = proposal.draft_token_ids, proposal.draft_probs
    if any(not 0 <= token_id < vocab_size for token_id in token_ids):
        raise GarbageError("a draft token is not in the vocabulary")
    if not needs_draft_probs(sequence.request.sampling):
        return
    if len(probs) != len(token_ids):
        raise GarbageError(f"{len(token_ids)} draft tokens came with {len(probs)} distributions")
    for token_id, distribution in zip(token_ids, probs, strict=True):
        pairs = dict(zip(distribution.token_ids, distribution.probs, strict=False))
        is_sound = (
            len(distribution.token_ids) == len(distribution.probs) == len(pairs)
            and all(0 <= candidate < vocab_size for candidate in pairs)
            and all(prob >= 0 for prob in pairs.values())
            and math.isclose(sum(pairs.values()), 1.0, abs_tol=_PROBS_TOLERANCE)
            and pairs.get(token_id, 0.0) > 0
        )
        if not is_sound:
            raise GarbageError("a draft distribution is not one, or its token was not drawn from it")
