"""One command to the target and its verdicts: a verification, or a run of plain decoding that a draft may end."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator
from typing import Protocol

from orchestrator.answers.sequence import Sequence
from orchestrator.control.decision import Decision
from orchestrator.drafting.cut_in import CutIn
from orchestrator.drafting.drafter import DraftBlock
from orchestrator.replicas.remote_sequence import RemoteSequence
from pilotfish.errors import InvalidRequestError, PilotfishError
from pilotfish.features import FeatureRequest
from pilotfish.messages import Decode, TargetCommand, Verdict, Verify
from pilotfish.types import LoadReport, TreeRequest

_log = logging.getLogger(__name__)

_MIN_EXTENDED_TOKENS = 8
"""Of shorter runs too little would be left to send the extension in time."""
_EARLY_TOKENS, _EARLY_S = 16, 0.05
"""Before its end a run is extended: in time, but not on what was known long before."""


def nears_end(num_run_tokens: int, num_coming_tokens: int, token_s: float = 0.0) -> bool:
    """Whether a run of so many tokens, of which so many are still to come, is to be extended now.

    token_s: time of one of them; 0: not known.
    """
    num_early = _EARLY_TOKENS if token_s <= 0 else max(_EARLY_TOKENS, int(_EARLY_S / token_s))
    return num_run_tokens >= _MIN_EXTENDED_TOKENS and num_coming_tokens <= min(num_run_tokens // 4, num_early)


class RoundTarget(Protocol):
    """The part of a target that a round needs."""

    async def opened(self, sequence: Sequence) -> RemoteSequence:
        """The open sequence on a replica. Raises PilotfishError when there is none."""

    def feature_request(self, remote: RemoteSequence, length: int) -> FeatureRequest | None:
        """What goes with a command on length tokens."""

    async def verdict(self, remote: RemoteSequence, sequence: Sequence) -> Verdict:
        """The next verdict. Raises the PilotfishError that came instead."""

    def recover(self, error: PilotfishError, num_attempts: int) -> bool:
        """Leave the replica that failed; False if that was no attempt to answer.

        Raises `error` when trying elsewhere is no use.
        """


class RemoteRound:
    """A verification or a decode run in progress: an iterator over its verdicts.

    Asks again, elsewhere, when a replica fails under it.
    """

    def __init__(
        self,
        target: RoundTarget,
        sequence: Sequence,
        draft: DraftBlock,
        *,
        num_tokens: int,
        max_run_tokens: int | None = None,
        num_in_target_drafts: int = 0,
        tree: TreeRequest | None = None,
        begun_on: RemoteSequence | None = None,
    ) -> None:
        """num_tokens: of a decode run; it has come that far after one verdict on a draft, too.

        max_run_tokens: asked for and not committed, at most, however often the run is extended; None: num_tokens.
        num_in_target_drafts: drafts that the target may make for itself in a step of a run, branching within `tree`.
        begun_on: verifies the draft already, without a command.
        """
        self.elapsed_s = 0.0
        """From the command to the last verdict, but for a draft that cut in; 0 when a failover makes it meaningless."""
        self.base_length = sequence.length
        """Committed tokens before it."""
        self.num_decoded_tokens = 0
        """Tokens that came without a draft."""
        self.successor: Decision | None = None
        """What follows the run, where that was decided before its end."""
        self._num_in_target_drafts = num_in_target_drafts
        self._tree = tree if num_in_target_drafts else None
        self._target = target
        self._sequence = sequence
        self._draft = draft
        self._goal_length = sequence.length + num_tokens
        self._max_run_tokens = max_run_tokens or num_tokens
        self._is_cut = False
        """Whether a draft has ended the run."""
        self._cut_in: CutIn | None = None
        """The draft that was sent to end it."""
        self._remote: RemoteSequence | None = None
        """Where the command was sent."""
        self._started_s: float | None = None
        self._timed_from_s: float | None = None
        self._timed_from_length = sequence.length
        """What came after this time and this length tells what a token takes."""
        self._load_timed_from = self._load_before = LoadReport()
        """What the replica had told then, and at the verdict before the round."""
        self._begun_on = begun_on
        self._num_attempts = 0

    def __aiter__(self) -> AsyncIterator[Verdict]:
        return self

    @property
    def is_over(self) -> bool:
        return self._is_cut or self._sequence.length >= self._goal_length or self._sequence.is_finished

    @property
    def takes_drafts(self) -> bool:
        """Whether this is a decode run that a draft may end now."""
        is_held = self._cut_in is not None and self._cut_in.may_hold(self._sequence)
        if is_held or self.is_over or self._remote is None or self._draft.token_ids:
            return False
        # The last token is on its way already: nothing is left to cut short.
        return self._goal_length - self._sequence.length > 1

    @property
    def last_arrival_s(self) -> float:
        """When the last verdict came, on time.monotonic(); 0 before any."""
        return 0.0 if self._remote is None else self._remote.last_arrival_s

    @property
    def token_s(self) -> float:
        """Of a run: time of a token after the first verdict, which may have waited for a step under way to end; 0 as
        elapsed_s, and for a run of one verdict."""
        num_tokens = self._sequence.length - self._timed_from_length
        if self._timed_from_s is None or self._remote is None or not self.elapsed_s or num_tokens <= 0:
            return 0.0
        return max(0.0, self._remote.last_arrival_s - self._timed_from_s) / num_tokens

    @property
    def prefill_s(self) -> float:
        """By how much prefills made the replica's steps longer, of a run for each of the tokens that token_s tells
        of."""
        return self._prefill_s(self._load_timed_from) / max(1, self._sequence.length - self._timed_from_length)

    @property
    def round_prefill_s(self) -> float:
        """The same, of all since the verdict before the round."""
        return self._prefill_s(self._load_before)

    @property
    def num_steps(self) -> int:
        """Of the replica, since the verdict before the round."""
        return 0 if self._remote is None else max(0, self._remote.load.num_steps - self._load_before.num_steps)

    def _prefill_s(self, since: LoadReport) -> float:
        return 0.0 if self._remote is None else max(0, self._remote.load.prefill_time_ns - since.prefill_time_ns) / 1e9

    @property
    def num_coming_tokens(self) -> int:
        """Tokens that it was asked for and that have not come."""
        return max(0, self._goal_length - self._sequence.length)

    @property
    def is_running_out(self) -> bool:
        """Whether a long run nears its end, so that it is time to decide what follows."""
        if self.is_over or self._draft.token_ids or self._remote is None or self.successor is not None:
            return False
        num_coming = self.num_coming_tokens
        return nears_end(self._goal_length - self.base_length, num_coming, self.token_s) and (
            self._sequence.num_remaining_tokens > num_coming
        )

    def go_on(self, decision: Decision, following: Decision) -> Decision:
        """Follow the run of `decision`, which is running out, with what was decided while the target still decodes.

        Returns the decision that holds now: more of the same extends the run, which then loses no step to a round
        trip; anything else succeeds it at its end.
        """
        if following.num_draft_tokens != decision.num_draft_tokens:
            self.successor = following
            return decision
        self._extend(following.num_decode_tokens)
        return following

    def _extend(self, num_tokens: int) -> None:
        """Decode num_tokens more. What is measured and counted begins anew: the run so far is another one."""
        assert self._remote is not None, "only a run that is running out can be extended"
        reached = self._goal_length
        # A client that reads slowly pauses its sequence: what is asked for waits for it in memory.
        self._goal_length += min(num_tokens, self._max_run_tokens - self.num_coming_tokens)
        self.base_length, self.num_decoded_tokens = self._sequence.length, 0
        if self._started_s != math.inf:
            self._started_s = self._timed_from_s = self._remote.last_arrival_s
            self._timed_from_length = self._sequence.length
            self._load_timed_from = self._load_before = self._remote.load
        try:
            self._remote.send(self._command(self._remote))
        except PilotfishError:
            # What was asked for before may come yet; what comes after it is the next round's business.
            self._goal_length = reached

    def leave(self) -> None:
        """What has not come is not wanted any more: the target's sequence is about to be closed."""
        self._goal_length = self._sequence.length

    def cut_in(self, draft: DraftBlock) -> None:
        """End the run with the verification of `draft`, which stands on the tokens committed now.

        The target goes on meanwhile. It skips the beginning of the draft that it has decoded itself; where the
        two differ, or none is left, it drops the draft and the run goes on. A draft of less than two tokens
        changes nothing.
        """
        # The first token is being decoded already.
        if len(draft.token_ids) < 2 or not self.takes_drafts:
            return
        assert self._remote is not None
        with contextlib.suppress(PilotfishError):  # the run's next verdict will not come either, and tells why
            draft = draft.within(self._remote.link.limits.max_draft_tokens)
            self._cut_in = CutIn(self._sequence.length, draft.token_ids)
            self._remote.cut_in_lengths.add(self._sequence.length)
            self._remote.send(_verify(self._remote.sequence_id, self._sequence.length, draft))

    async def __anext__(self) -> Verdict:
        if self.is_over:
            raise StopAsyncIteration
        while True:
            try:
                verdict = await self._next()
                break
            except PilotfishError as error:
                self._remote = self._cut_in = None
                if isinstance(error, InvalidRequestError) and self._draft.token_ids:
                    # Whatever the target has against the draft, the request must not suffer for it.
                    _log.warning("the target refuses a draft, which is dropped: %s", error)
                    self._draft = DraftBlock()
                    continue
                self._num_attempts += self._target.recover(error, self._num_attempts + 1)
        self._num_attempts = 0
        if verdict.num_draft_tokens == 0:
            self.num_decoded_tokens += len(verdict.token_ids)
        return verdict

    async def _next(self) -> Verdict:
        if self._remote is None:
            remote = await self._target.opened(self._sequence)
            # Replicas of a pool may differ, and those that it begins with may be lost.
            self._draft = self._draft.within(remote.link.limits.max_draft_tokens)
            self._load_before = remote.load
            started_s = remote.last_arrival_s
            if remote is not self._begun_on:
                remote.send(self._command(remote))
                started_s = remote.last_sent_s
            self._remote, self._begun_on = remote, None
            # Asked for twice, the time says nothing about a step.
            self._started_s = started_s if self._started_s is None else math.inf
        verdict = await self._target.verdict(self._remote, self._sequence)
        assert self._started_s is not None
        self._is_cut = self._cut_in is not None and verdict.num_draft_tokens > 0
        if self._timed_from_s is None:
            self._timed_from_s = self._remote.last_arrival_s
            self._timed_from_length = verdict.base_length + len(verdict.token_ids)
            self._load_timed_from = self._remote.load
        if not self._is_cut:
            self.elapsed_s = max(0.0, self._remote.last_arrival_s - self._started_s)
        return verdict

    def _command(self, remote: RemoteSequence) -> TargetCommand:
        length = self._sequence.length
        features, limit = self._target.feature_request(remote, length), remote.link.limits.max_draft_tokens
        if self._draft.token_ids:
            return _verify(remote.sequence_id, length, self._draft, features)
        return Decode(
            sequence_id=remote.sequence_id,
            base_length=length,
            num_tokens=self._goal_length - length,
            num_draft_tokens=min(self._num_in_target_drafts, limit),
            features=features,
            tree=self._tree and self._tree.within(limit),
        )


def _verify(sequence_id: int, length: int, draft: DraftBlock, features: FeatureRequest | None = None) -> Verify:
    return Verify(
        sequence_id=sequence_id,
        base_length=length,
        draft_token_ids=draft.token_ids,
        draft_probs=draft.probs,
        parents=draft.parents,
        features=features,
    )
