"""A drafter on a replica of the draft pool: late, absent, wrong or stale, it only costs its round."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.ahead_drafts import AheadDrafts
from orchestrator.drafting.ahead_policy import AheadPolicy
from orchestrator.drafting.drafter import DraftBlock, Drafter
from orchestrator.drafting.feature_feed import FeatureFeed
from orchestrator.drafting.proposal_check import check_proposal
from orchestrator.drafting.sequence_pool import DraftPool, SequencePool
from orchestrator.replicas.remote_sequence import RemoteSequence
from pilotfish.errors import PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import Event, PreparedDrafts, Proposal, Propose, SequenceError
from pilotfish.speculation.lookup.index import needs_draft_probs
from pilotfish.types import SequenceErrorCode, TreeRequest

_log = logging.getLogger(__name__)

_MAX_UNREAD_EVENTS = 512
"""A drafter that is slow but alive answers once per round, and with what it drafts ahead; unread answers are those
of missed rounds and of drafts that nobody looked for."""
_MAX_OPENINGS = 2
"""In one round: a replica that has lost the sequence gets it once more."""


class RemoteDrafter(Drafter):
    """See the module. One per request."""

    num_missed_deadlines = 0

    def __init__(
        self,
        pool: DraftPool,
        deadline_s: Callable[[int], float],
        features: FeatureFeed | None = None,
        tree: TreeRequest | None = None,
        ahead: AheadPolicy | None = None,
        hand_on: Callable[[PreparedDrafts], None] = lambda _: None,
    ) -> None:
        """`deadline_s(num_tokens)` is how long a round may wait for that many draft tokens.

        features: of the target, for proposers that build on them. tree: how drafts may branch; None: chains.
        ahead: how far the replica may draft ahead; None: not at all. hand_on: takes what it has drafted ahead, as soon
        as that arrives.
        """
        self._hand_on = hand_on
        self._pool = SequencePool(pool)
        self._ahead = AheadDrafts(ahead or AheadPolicy("off", 0))
        self._features = features or FeatureFeed()
        self._features_end = 0
        """Where what the replica has got of them ends."""
        self._tree = tree
        self._deadline_s = deadline_s
        self._remote: RemoteSequence | None = None
        self._has_answered = False
        self._is_late = False
        """Whether an answer that was given up may still come."""

    @property
    def unavailable_reason(self) -> str:
        remote = self._usable_remote()
        link = self._pool.pick() if remote is None else remote.link
        return self._pool.absence_reason if link is None else self._features.shortage(link.model)

    @property
    def is_saturated(self) -> bool:
        return self._usable_remote() is None and self._pool.is_full

    def prepare(self, sequence: Sequence) -> None:
        try:
            self._opened(sequence)
        except PilotfishError as error:
            _log.debug("the drafter could not be prepared: %s", error)

    async def propose(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        self._ahead.learn(sequence, time.monotonic())
        draft = self._prepared(sequence, num_tokens)
        if draft is None:
            draft = await self._asked(sequence, num_tokens)
        self._ahead.remember(sequence, () if draft.parents else draft.token_ids, time.monotonic())
        return draft

    def handed_on(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        self._ahead.learn(sequence, time.monotonic())
        draft = self._prepared(sequence, num_tokens, is_handed_on=True)
        if draft is None:
            draft = DraftBlock()
        else:
            self._ahead.add_gone_on()
        self._ahead.remember(sequence, draft.token_ids, time.monotonic())
        return draft

    def rewind(self, length: int) -> None:
        """Take back what followed length committed tokens: it was told before it was certain."""
        if self._remote is not None:
            self._remote.known_length = min(self._remote.known_length, length)
            if self._is_late:
                self.close()  # an answer on what was taken back could pass for one on what follows

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        self._ahead.forget()

    def _prepared(self, sequence: Sequence, num_tokens: int, *, is_handed_on: bool = False) -> DraftBlock | None:
        """What the replica has drafted ahead for just the committed tokens, without waiting; None if nothing.

        is_handed_on: the target verifies it, as long as it is. Where rounds are to be of another length by now, nothing
        is drafted ahead of it.
        """
        remote = self._usable_remote()
        if remote is None:
            return None
        draft = self._ahead.take(remote.arrived(), sequence, None if is_handed_on else num_tokens)
        if draft is None:
            return None
        length = len(draft.draft_token_ids)
        try:
            check_proposal(draft, sequence, length, None, remote.link.model.vocab_size)
            if is_handed_on and length != num_tokens:
                self._ahead.forget()
            else:
                self._send_propose(remote, sequence, length, is_prepared=True)
        except PilotfishError as error:
            self._give_up(error)
            return None
        remote.link.report_success()
        return _block(draft, sequence)

    async def _asked(self, sequence: Sequence, num_tokens: int) -> DraftBlock:
        """The answer of the replica, if it comes in time."""
        started_s = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s(num_tokens)):
                proposal = await self._ask(sequence, num_tokens)
        except TimeoutError:
            self._is_late = True
            self.num_missed_deadlines += 1
            problem = "a proposal missed its deadline"
            # The first answer waits for the prompt to be read, which says nothing of the replica.
            elapsed_s = time.monotonic() - started_s
            if self._remote is not None and self._has_answered:
                self._remote.link.report_failure(problem)
                self._ahead.add_ask(elapsed_s)
            self._has_answered = True
            return DraftBlock(elapsed_s=elapsed_s, problem=problem)
        except PilotfishError as error:
            self._give_up(error)
            return DraftBlock(elapsed_s=time.monotonic() - started_s, problem=str(error))
        elapsed_s = time.monotonic() - started_s
        if proposal is None:
            return DraftBlock(elapsed_s=elapsed_s, is_deferred=True)
        self._has_answered = True
        self._ahead.add_ask(elapsed_s)
        return _block(proposal, sequence, elapsed_s)

    async def _ask(self, sequence: Sequence, num_tokens: int) -> Proposal | None:
        """The proposal on the committed tokens; None if features have to come first.

        Raises PilotfishError for every way to fail but lateness.
        """
        for _ in range(_MAX_OPENINGS):
            remote = self._opened(sequence)
            if remote.link.model.feature_layers and self._features.is_empty:
                return None  # they come with the next verdict
            num_tokens = min(num_tokens, remote.link.limits.max_draft_tokens)
            tree = self._send_propose(remote, sequence, num_tokens)
            proposal = await self._answer(remote, sequence, num_tokens)
            if proposal is None:
                self.close()
                continue
            check_proposal(proposal, sequence, num_tokens, tree, remote.link.model.vocab_size)
            remote.link.report_success()
            return proposal
        raise UnavailableError("the draft replica forgets the sequence again and again")

    def _send_propose(
        self, remote: RemoteSequence, sequence: Sequence, num_tokens: int, *, is_prepared: bool = False
    ) -> TreeRequest | None:
        """State what is committed and ask for a draft, or for what follows the prepared one. Returns its tree."""
        limit = remote.link.limits.max_draft_tokens
        tree = self._tree and self._tree.within(limit)
        remote.send(
            Propose(
                sequence_id=remote.sequence_id,
                base_length=sequence.length,
                new_token_ids=sequence.tokens_since(remote.known_length),
                num_draft_tokens=num_tokens,
                features=self._features.since(self._features_end),
                tree=tree,
                ahead=None if tree else self._ahead.request(remote.link, sequence, num_tokens),
                is_prepared=is_prepared,
            )
        )
        self._features_end = self._features.end_position
        remote.known_length = sequence.length
        return tree

    async def _answer(self, remote: RemoteSequence, sequence: Sequence, num_tokens: int) -> Proposal | None:
        """The answer on the committed tokens; None if the replica does not know the sequence (any more)."""
        while True:
            event = await remote.receive()
            if isinstance(event, Proposal):
                if event.base_length == sequence.length:
                    return event
            elif isinstance(event, PreparedDrafts):
                draft = self._ahead.take_late(event, sequence, num_tokens)
                if draft is not None:
                    return draft
            elif isinstance(event, SequenceError):
                if event.code is SequenceErrorCode.UNKNOWN_SEQUENCE:
                    return None
                if event.code is not SequenceErrorCode.STALE or event.base_length == sequence.length:
                    self._take_error(event, remote, sequence.length + num_tokens)
            # Anything else is the late answer to an earlier round.

    def _take_error(self, event: SequenceError, remote: RemoteSequence, num_tokens: int) -> NoReturn:
        """Leave the replica, which has ended the sequence there. Raises UnavailableError."""
        if self._pool.note(event, remote.link, num_tokens):
            self._features.stop()
        self.close()
        raise UnavailableError(f"draft replica {remote.link.replica_id}: {event.message}")

    def _usable_remote(self) -> RemoteSequence | None:
        """The open sequence; where the replica is lost, drains or fails, it is closed, asked for drafts or not."""
        if self._remote is not None and not self._remote.is_welcome:
            self.close()
        return self._remote

    def _opened(self, sequence: Sequence) -> RemoteSequence:
        """The open sequence on a replica, opened with every committed token where there is none."""
        remote = self._usable_remote()
        if remote is not None:
            return remote
        link = self._pool.pick()
        if link is None:
            raise UnavailableError(self._pool.absence_reason)
        remote = self._remote = RemoteSequence(
            link, max_events=_MAX_UNREAD_EVENTS, on_arrival=partial(self._arrived, sequence)
        )
        self._has_answered = self._is_late = False
        self._features_end = 0
        self._features.want(link.model)
        remote.send(sequence.opening(remote.sequence_id))
        remote.known_length = sequence.length
        return remote

    def _arrived(self, sequence: Sequence, event: Event) -> None:
        """Hand on what was drafted ahead. Of distributions there would be too much to send in every round."""
        if (
            isinstance(event, PreparedDrafts)
            and event.base_length == sequence.length
            and not needs_draft_probs(sequence.request.sampling)
        ):
            self._hand_on(event)

    def _give_up(self, error: PilotfishError) -> None:
        if self._remote is None:
            return
        if isinstance(error, ResourceExhaustedError):
            # Those who have a place there are served well.
            self._remote.link.report_full()
        else:
            self._remote.link.report_failure(str(error))
        self.close()


def _block(proposal: Proposal, sequence: Sequence, elapsed_s: float = 0.0) -> DraftBlock:
    """The proposal as the round's draft."""
    probs = proposal.draft_probs if needs_draft_probs(sequence.request.sampling) else ()
    compute_s = proposal.timings.compute_time_ns / 1e9
    return DraftBlock(proposal.draft_token_ids, probs, elapsed_s, proposal.parents, compute_s=compute_s)
