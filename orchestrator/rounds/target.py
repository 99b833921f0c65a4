"""The target as one request sees it: it answers, whichever replica does the work."""

from __future__ import annotations

import logging

import msgspec

from orchestrator.answers.sequence import Sequence, check_verdict
from orchestrator.rounds.commands import (
    Acquire,
    Acquired,
    Arrived,
    Close,
    Command,
    Event,
    Lost,
    NotAcquired,
    Open,
    Report,
    Send,
)
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.failover import Failover, TargetReplicas
from orchestrator.rounds.peer import Peer, Replica
from orchestrator.rounds.round import Round
from orchestrator.rounds.timing import Mark, RoundTiming
from pilotfish.errors import InvalidRequestError, PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import Opened, Predrafted, SequenceError, Verdict
from pilotfish.rpc.replica.validation import check_prepared
from pilotfish.types import LoadReport, SequenceErrorCode

_log = logging.getLogger(__name__)

_CUT_IN_ERRORS = (SequenceErrorCode.STALE, SequenceErrorCode.INVALID)
"""Errors that a draft sent into a run may cause, such as by coming after its end: the run goes on."""


class Target:
    """One request's sequence on the target pool: it is opened elsewhere, and asked again, when its replica fails.

    Greedy and coupled texts go on unchanged. Commands are appended to `out`.
    """

    def __init__(
        self,
        pool: TargetReplicas,
        sequence: Sequence,
        out: list[Command],
        *,
        acquire_timeout_s: float,
        features: FeatureFeed | None = None,
        preferred: str = "",
    ) -> None:
        """preferred: id of the replica to take among equals."""
        self.round: Round | None = None
        """The round that the target was asked for last."""
        self.peer: Peer | None = None
        """The replica that has the sequence; None: it is nowhere."""
        self.last = Mark(0.0, 0, LoadReport())
        """The moment of the replica's last message."""
        self.num_cached_tokens = 0
        """Prompt tokens found in a prefix cache, at the first opening."""
        self.queue_time_ns = 0
        """The wait for a replica with room, and the first step's wait on it."""
        self.has_answered = False
        self._pool = pool
        self._sequence = sequence
        self._out = out
        self._failover = Failover(pool, acquire_timeout_s)
        self._features = features or FeatureFeed()
        self._preferred = preferred
        self._num_tokens = 0
        """See Mark.num_tokens."""
        self._acquiring_since_s = 0.0

    @property
    def num_failovers(self) -> int:
        """Replicas that were left because they failed."""
        return self._failover.num_failovers

    @property
    def replica(self) -> Replica | None:
        """The replica that has the sequence and is connected; None: none."""
        return self.peer.replica if self.peer is not None and self.peer.is_usable else None

    @property
    def can_move(self) -> bool:
        """Whether a replica, this or another, would open the sequence again if it were closed."""
        peer = self.peer
        return peer is None or not peer.is_usable or peer.is_welcome or self._pool.pick() is not None

    @property
    def is_welcome(self) -> bool:
        """Whether the sequence stays where it is: the replica serves it on, or no other replica does."""
        peer = self.peer
        return peer is not None and peer.is_usable and (peer.is_welcome or self._pool.pick() is None)

    def ask(self, asked: Round, now_s: float) -> None:
        """Have the target do this, once a replica has the sequence."""
        self.round = asked
        if self.peer is not None and not self.is_welcome:
            self.leave()
        if self.peer is None:
            self._acquire(now_s)
        else:
            self._begin(now_s, self.last.load)

    def follow(self, begun: Round) -> None:
        """The replica does this already, since its last verdict."""
        self.round = begun
        begun.timing = RoundTiming(self.last)

    def extend(self, num_tokens: int) -> None:
        """Have the run go on before it ends, so that no step is lost to a round trip."""
        assert self.round is not None
        self.round.extend(self._sequence.length, num_tokens, self.last)
        self._send_round()

    def cut_in(self, draft: Draft) -> None:
        """End the run with this draft."""
        assert self.peer is not None
        assert self.round is not None
        length = self._sequence.length
        command = self.round.cut_in(self.peer, length, draft)
        if command is not None:
            self.peer.cut_in_lengths.add(length)
            self._out.append(Send(self.peer, command, is_optional=True))

    def hand_on(self, drafts: Predrafted) -> None:
        """Let the replica go on with them, without a round trip, where the verification under way ends as foreseen."""
        peer = self.peer
        is_verifying = self.round is not None and self.round.verifies_draft
        if peer is None or not is_verifying or not peer.limits.takes_prepared_drafts:
            return
        try:
            check_prepared(drafts, peer.model, peer.limits)
        except InvalidRequestError:
            return  # the drafter may be wrong, or of another vocabulary
        handed_on = msgspec.structs.replace(drafts, sequence_id=peer.sequence_id)
        self._out.append(Send(peer, handed_on, is_optional=True))

    def hear(self, event: Event, now_s: float) -> Verdict | None:
        """Something happened; the verdict that it is, if it is one.

        Raises the PilotfishError that ends the request: one that the caller can mend, or when trying elsewhere is no
        use.
        """
        match event:
            case Arrived() if event.peer is self.peer:
                try:
                    return self._take(event)
                except PilotfishError as error:
                    self._ask_again(error, event.peer, now_s)
            case Lost() if event.peer is self.peer:
                event.peer.is_lost = True
                self._ask_again(event.error, event.peer, now_s)
            case Acquired():
                self._open(event.replica, now_s)
            case NotAcquired():
                raise event.error
        return None

    def leave(self) -> None:
        """Close between two rounds: the next one finds another replica."""
        self._failover.num_failovers += self.peer is not None and not self.peer.is_usable
        self.close()

    def close(self) -> None:
        """Free what the replica holds. Idempotent."""
        peer, self.peer = self.peer, None
        if peer is not None:
            self._out.append(Close(peer, self._sequence.tokens_since(0) if peer.is_usable else ()))

    def _open(self, replica: Replica, now_s: float) -> None:
        """Open the sequence there, and ask."""
        if not self.has_answered:
            self.queue_time_ns += round(1e9 * (now_s - self._acquiring_since_s))
        try:
            self.peer = Peer(replica)
        except UnavailableError as error:  # it was lost meanwhile
            self._failover.leave(error, replica)
            self._acquire(now_s)
            return
        self._out.append(Open(self.peer, self.peer.opening(self._sequence)))
        self._begin(now_s, replica.load)

    def _take(self, event: Arrived) -> Verdict | None:
        """A message of the peer's replica; the verdict that it is. Raises the PilotfishError that came instead."""
        peer, message = event.peer, event.message
        self.last = Mark(event.at_s, self._num_tokens, event.load)
        match message:
            case Verdict():
                check_verdict(message, self._sequence, peer.model, peer.limits)
                self._failover.answered()
                if not self.has_answered:
                    self.has_answered = True
                    self.queue_time_ns += message.timings.queue_time_ns
                if message.features is not None:
                    self._features.add(message.features)
                assert self.round is not None
                self._num_tokens += len(message.token_ids) - message.num_accepted_grammar_tokens
                self.last = Mark(event.at_s, self._num_tokens, event.load)
                self.round.take(message, self.last)
                return message
            case Opened():
                peer.is_opened = True
                self._failover.opened()
                if not self.has_answered:
                    self.num_cached_tokens = message.num_cached_tokens
            case SequenceError():
                self._raise(message, peer)
        return None

    def _ask_again(self, error: PilotfishError, peer: Peer, now_s: float) -> None:
        """Ask again, without a draft that the replica refuses, else elsewhere. Raises `error` where that is no use."""
        asked = self.round
        assert asked is not None
        if asked.is_over(self._sequence.length):
            self.leave()
            return
        asked.restart()
        if isinstance(error, InvalidRequestError):
            if not asked.verifies_draft:
                self.close()
                raise error
            # Whatever the target has against the draft, the request must not suffer for it.
            _log.warning("the target refuses a draft, which is dropped: %s", error)
            asked.drop_draft()
            if not peer.is_lost:
                self._send_round()
                return
            self.close()
        else:
            self._leave(error, peer, now_s)
        self._acquire(now_s)

    def _begin(self, now_s: float, load: LoadReport) -> None:
        """Ask for the round."""
        assert self.round is not None
        self.round.timing = RoundTiming(Mark(now_s, self._num_tokens, load))
        self._send_round()

    def _send_round(self) -> None:
        assert self.peer is not None
        assert self.round is not None
        length = self._sequence.length
        features = self._features.request(self.peer.model, length)
        self._out.append(Send(self.peer, self.round.command(self.peer, length, features)))

    def _acquire(self, now_s: float) -> None:
        self._acquiring_since_s = now_s
        tokens, avoid = self._sequence.tokens_since(0), frozenset(self._failover.avoid)
        self._out.append(Acquire(tokens, avoid, self.has_answered, self._preferred))

    def _leave(self, error: PilotfishError, peer: Peer, now_s: float) -> None:
        """Leave the replica that failed. Raises `error` when trying elsewhere is no use."""
        self.peer = None
        self._out.append(Close(peer))
        if isinstance(error, ResourceExhaustedError) and not peer.is_opened:
            length, has_answered = self._sequence.length, self.has_answered
            report = self._failover.wait_for_place(error, peer.replica, length, now_s, has_answered=has_answered)
            self._out.append(report)
        else:
            self._failover.leave(error, peer.replica)

    def _raise(self, message: SequenceError, peer: Peer) -> None:
        if message.code in _CUT_IN_ERRORS and message.base_length in peer.cut_in_lengths:
            _log.debug("a draft that cut in came to nothing: %s", message.message)
            return
        if message.code is SequenceErrorCode.UNAVAILABLE:
            self._out.append(Report(peer.replica, "draining"))
        raise message.error(f"target replica {peer.replica.replica_id}")
