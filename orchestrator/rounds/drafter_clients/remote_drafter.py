"""A drafter on a replica of the draft pool: late, absent, wrong or stale, it only costs its round."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from orchestrator.rounds.commands import Arrived, Close, Command, Event, Lost, Open, Report, Send, Wake, Woken
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafter_clients.ask import Ask
from orchestrator.rounds.drafter_clients.branching import CHAINS, Branching
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.predraft import Predrafts
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.drafter_clients.proposal_check import check_proposal
from orchestrator.rounds.drafter_clients.reading import Reading
from orchestrator.rounds.drafter_clients.sequence_pool import DraftReplicas, SequencePool
from orchestrator.rounds.peer import Peer, Text
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import Predrafted, Proposal, Propose, SequenceError
from pilotfish.types import SequenceErrorCode, TreeRequest

_log = logging.getLogger(__name__)

_MAX_OPENINGS = 2
"""Openings in one round: a replica that has lost the sequence gets it once more."""


class RemoteDrafter(DrafterClient):
    """See the module. One per request."""

    peer: Peer | None = None
    num_missed_deadlines = 0

    def __init__(
        self,
        pool: DraftReplicas,
        deadline_s: Callable[[int], float],
        out: list[Command],
        *,
        needs_probs: bool = False,
        features: FeatureFeed | None = None,
        branching: Branching = CHAINS,
        predraft: PredraftPolicy | None = None,
        vocab_size: int | None = None,
    ) -> None:
        """`deadline_s(num_tokens)` is how long a round may wait for that many draft tokens; inf: until it is woken.

        needs_probs: drafts come with their distributions, for rejection sampling.
        features: the target's, for proposers that need them. branching: whether drafts branch.
        predraft: how far the replica may draft ahead; None: not at all. vocab_size: that of a target that fails on
        a token beyond it; None: only the drafter's own counts.
        """
        self._pool = SequencePool(pool)
        self._deadline_s = deadline_s
        self._out = out
        self._needs_probs = needs_probs
        self._features = features or FeatureFeed()
        self._branching = branching
        self._vocab_size = vocab_size
        self._policy = predraft or PredraftPolicy("off", 0)
        self._predrafts = Predrafts(self._policy)
        self._asked: Ask | None = None
        self.reading = Reading()
        self._is_late = False
        """Whether an answer that was given up may still come."""

    @property
    def unavailable_reason(self) -> str:
        peer = self._welcome_peer()
        replica = self._pool.pick() if peer is None else peer.replica
        return self._pool.absence_reason if replica is None else self._features.shortage(replica.model)

    @property
    def is_saturated(self) -> bool:
        return self._welcome_peer() is None and self._pool.is_full

    def prepare(self, text: Text, now_s: float) -> None:
        try:
            self._opened(text, now_s)
        except PilotfishError as error:
            _log.debug("the drafter could not be prepared: %s", error)

    def ask(self, text: Text, num_tokens: int, now_s: float) -> Draft | None:
        return self.ready(text, num_tokens, now_s) or self.ask_replica(text, num_tokens, now_s)

    def ready(self, text: Text, num_tokens: int, now_s: float, *, drafts_next: bool = True) -> Draft | None:
        """A round begins: its draft, if the replica made it ahead. drafts_next: whether the replica is to draft the one
        after."""
        self._predrafts.learn(text)
        draft = self._prepared(text, num_tokens, num_next=None if drafts_next else 0)
        return draft and self._remembered(draft, text, now_s)

    def ask_replica(self, text: Text, num_tokens: int, now_s: float) -> Draft | None:
        """See `ask`, for a round whose draft was not made ahead."""
        self._asked = Ask(num_tokens, now_s, now_s + self._deadline_s(num_tokens))
        return self._settled(self._send(text, now_s), text, now_s)

    def hear(self, event: Event, text: Text, now_s: float) -> Draft | None:
        # A message's own time counts: the session may have waited for its client since.
        match event:
            case Arrived() if event.peer is self.peer:
                draft = self._take(event, text, event.at_s)
            case Lost() if event.peer is self.peer:
                draft = self._failed(event.error, now_s)
            case Woken(alarm="deadline") if self._asked is not None and event.at_s >= self._asked.deadline_s:
                draft = self._missed(self._asked, min(now_s, self._asked.deadline_s))
            case _:
                draft = None
        return self._settled(draft, text, now_s)

    def handed_on(self, text: Text, num_tokens: int, now_s: float) -> Draft:
        self._predrafts.learn(text)
        draft = self._prepared(text, None, num_next=num_tokens)
        self._policy.counters.num_gone_on += draft is not None
        return self._remembered(draft or NO_DRAFT, text, now_s)

    def rewind(self, length: int) -> None:
        if self.peer is not None:
            self.peer.rewind(length)
            if self._is_late:
                self.close()  # an answer on what was taken back could pass for one on what follows

    def close(self) -> None:
        peer, self.peer = self.peer, None
        if peer is not None:
            self._out.append(Close(peer))
        self._predrafts.forget()

    def _welcome_peer(self) -> Peer | None:
        """The replica that has the sequence. One that is lost, drains or fails is left, asked for drafts or not."""
        if self.peer is not None and not self.peer.is_welcome:
            self.close()
        return self.peer

    def _settled(self, draft: Draft | None, text: Text, now_s: float) -> Draft | None:
        """The draft, if one was waited for."""
        if draft is None or self._asked is None:
            return None
        self._asked = None
        return self._remembered(draft, text, now_s)

    def _remembered(self, draft: Draft, text: Text, now_s: float) -> Draft:
        self._predrafts.remember(text, draft, now_s)
        return draft

    def _prepared(self, text: Text, max_tokens: int | None, *, num_next: int | None) -> Draft | None:
        """The predraft for just the committed tokens, cut to max_tokens; None if there is none.

        num_next: draft tokens of the next round; None: as many. Of another number nothing is drafted ahead.
        """
        peer = self._welcome_peer()
        found = self._predrafts.take(text, max_tokens)  # forgotten with the replica
        if peer is None or found is None:
            if num_next == 0:
                self._predrafts.forget()
            return None
        length = len(found.draft_token_ids)
        try:
            self._check(found, length, None, peer)
        except PilotfishError as error:
            self._give_up(error)
            return None
        if num_next not in (None, length):
            self._predrafts.forget()
        else:
            self._propose(peer, text, length, is_prepared=True)
        self._out.append(Report(peer.replica, "success"))
        return Draft.of(found, needs_probs=self._needs_probs)

    def _send(self, text: Text, now_s: float) -> Draft | None:
        """Ask the replica, opening the sequence there if need be; a draft where nobody can be asked."""
        asked = self._asked
        assert asked is not None
        asked.num_openings += 1
        try:
            peer = self._opened(text, now_s)
        except PilotfishError as error:
            return self._failed(error, now_s)
        if peer.model.feature_layers and self._features.is_empty:
            return Draft(elapsed_s=now_s - asked.asked_s, is_deferred=True)  # they come with the next verdict
        most = min(peer.limits.max_draft_tokens, peer.model.max_draft_depth or math.inf)
        asked.num_tokens = int(min(asked.num_tokens, most))
        self.reading.go_on(text.length - peer.known_length, now_s)
        asked.tree = self._propose(peer, text, asked.num_tokens)
        if asked.deadline_s < math.inf:
            self._out.append(Wake(asked.deadline_s, "deadline"))
        return None

    def _propose(self, peer: Peer, text: Text, num_tokens: int, *, is_prepared: bool = False) -> TreeRequest | None:
        """State what is committed and ask for a draft, or for what follows the prepared one. Returns its tree."""
        ahead = self._predrafts.request(peer, text, num_tokens) if self._branching.may_draft_ahead else None
        tree = None if ahead or is_prepared else self._branching.request(peer, text.length, num_tokens)
        message = Propose(
            sequence_id=peer.sequence_id,
            base_length=text.length,
            new_token_ids=peer.news(text),
            num_draft_tokens=num_tokens,
            features=self._features.since(peer.features_end),
            tree=tree,
            ahead=ahead,
            is_prepared=is_prepared,
        )
        peer.features_end = self._features.end_position
        self._out.append(Send(peer, message))
        return tree

    def _take(self, event: Arrived, text: Text, now_s: float) -> Draft | None:
        """What a message of the replica brings; None: nothing that is waited for."""
        asked, message = self._asked, event.message
        found: Proposal | None = None
        match message:
            case Predrafted() if asked is None:
                self._predrafts.add(message)
            case Predrafted() if asked is not None:
                found = self._predrafts.take_late(message, text, asked.num_tokens)
            case Proposal():
                self.reading.end()  # whatever it stands on
                found = message if message.base_length == text.length else None
            case SequenceError() if asked is not None:
                return self._refused(message, event.peer, text, now_s)
        # Anything else is the late answer to an earlier round.
        return None if found is None or asked is None else self._answered(found, asked, event.peer, now_s)

    def _missed(self, asked: Ask, now_s: float) -> Draft:
        self._is_late = True
        self.num_missed_deadlines += 1
        elapsed_s, problem = now_s - asked.asked_s, "a proposal missed its deadline"
        peer = self.peer
        if peer is not None and self.reading.is_over:
            self._policy.add_ask(elapsed_s)
        if peer is not None and not self.reading.excuses(now_s):
            self._out.append(Report(peer.replica, "failure", problem))
        return asked.failed(problem, now_s)

    def _answered(self, found: Proposal, asked: Ask, peer: Peer, now_s: float) -> Draft:
        try:
            self._check(found, asked.num_tokens, asked.tree, peer)
        except PilotfishError as error:
            return self._failed(error, now_s)
        self._out.append(Report(peer.replica, "success"))
        elapsed_s = max(0.0, now_s - asked.asked_s)  # it may have arrived before it was asked for
        self._policy.add_ask(elapsed_s)
        return Draft.of(found, needs_probs=self._needs_probs, elapsed_s=elapsed_s)

    def _check(self, draft: Proposal, num_tokens: int, tree: TreeRequest | None, peer: Peer) -> None:
        """Raises InvalidRequestError."""
        vocab_size = peer.model.vocab_size if self._vocab_size is None else min(peer.model.vocab_size, self._vocab_size)
        check_proposal(draft, num_tokens, tree, vocab_size, needs_probs=self._needs_probs)

    def _refused(self, error: SequenceError, peer: Peer, text: Text, now_s: float) -> Draft | None:
        """What the replica has against the question; None: it is asked again, or that was an earlier one."""
        asked = self._asked
        assert asked is not None
        if error.code is SequenceErrorCode.UNKNOWN_SEQUENCE:
            self.close()
            if asked.num_openings < _MAX_OPENINGS:
                return self._send(text, now_s)
            message = "the draft replica forgets the sequence again and again"
            self._out.append(Report(peer.replica, "failure", message))
            return asked.failed(message, now_s)
        if error.code is SequenceErrorCode.STALE and error.base_length != text.length:
            return None
        report = self._pool.note(error, peer.replica, text.length + asked.num_tokens)
        if report is None:
            self._features.stop()
        else:
            self._out.append(report)
        self.close()
        message = f"draft replica {peer.replica.replica_id}: {error.message}"
        return asked.failed(message, now_s)

    def _failed(self, error: PilotfishError, now_s: float) -> Draft:
        self._give_up(error)
        return NO_DRAFT if self._asked is None else self._asked.failed(str(error), now_s)

    def _opened(self, text: Text, now_s: float) -> Peer:
        """The sequence on a replica, opened with every committed token where there is none. Raises UnavailableError."""
        peer = self._welcome_peer()
        if peer is not None:
            return peer
        replica = self._pool.pick()
        if replica is None:
            raise UnavailableError(self._pool.absence_reason)
        peer = self.peer = Peer(replica)
        self.reading.open(now_s)
        self._is_late = False
        self._features.want(replica.model)
        self._out.append(Open(peer, peer.opening(text)))
        return peer

    def _give_up(self, error: PilotfishError) -> None:
        """Leave the replica, which fails."""
        if self.peer is not None:
            self._out.append(Report(self.peer.replica, "failure", str(error)))
            self.close()
